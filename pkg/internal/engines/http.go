package engines

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// answerMax bounds what an engine may say: a list of some ten thousand containers.
const answerMax = 32 << 20

// socketThere says whether something may listen at a path.
func socketThere(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode()&os.ModeSocket != 0
}

// statusError is an answer that is no success.
type statusError struct {
	code    int
	message string
}

func (e *statusError) Error() string {
	if e.message == "" {
		return fmt.Sprintf("it answered with status %d", e.code)
	}
	return fmt.Sprintf("%s (status %d)", e.message, e.code)
}

func (e *statusError) Is(target error) bool { return target == ErrGone && e.code == 404 }

// request asks once, on a connection of its own, in HTTP 1.0: the answer then is what
// comes until the end, in one piece. patience is how long it may take.
func request(ctx context.Context, socket, method, path string, patience time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, plainly(err)
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := fmt.Fprintf(c, "%s %s HTTP/1.0\r\nHost: engine\r\nUser-Agent: sessionbox\r\nContent-Length: 0\r\n\r\n", method, path); err != nil {
		return nil, plainly(err)
	}
	code, body, err := answer(io.LimitReader(c, answerMax))
	if err != nil {
		return nil, plainly(err)
	}
	if code < 200 || code > 299 && code != 304 { // 304: it was so already
		var e struct {
			Message string `json:"message"`
			Cause   string `json:"cause"` // podman
		}
		_ = json.Unmarshal(body, &e) // else the status has to do
		return nil, &statusError{code, strings.TrimSpace(e.Message)}
	}
	return body, nil
}

// plainly says in few words what keeps an engine from answering.
func plainly(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer: %w", context.DeadlineExceeded)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("nobody listens there: %w", err)
	}
	return err
}

// answer reads what came back.
func answer(r io.Reader) (code int, body []byte, err error) {
	b := bufio.NewReader(r)
	line, err := b.ReadString('\n')
	if err != nil {
		return 0, nil, notHTTP(line, err)
	}
	version, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	word, _, _ := strings.Cut(rest, " ")
	if code, err = strconv.Atoi(word); err != nil || !strings.HasPrefix(version, "HTTP/1.") {
		return 0, nil, notHTTP(line, nil)
	}
	length, chunked := int64(-1), false
	for {
		line, err := b.ReadString('\n')
		if err != nil {
			return 0, nil, notHTTP(line, err)
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			break
		}
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.ToLower(key) {
		case "content-length":
			if length, err = strconv.ParseInt(value, 10, 64); err != nil || length < 0 || length > answerMax {
				return 0, nil, fmt.Errorf("its answer is said to be %q bytes", value)
			}
		case "transfer-encoding":
			chunked = !strings.EqualFold(value, "identity")
		}
	}
	switch {
	case code == 204 || code == 304:
	case chunked: // not for HTTP 1.0, which we said; whoever does it all the same is read
		body, err = unchunk(b)
	case length >= 0:
		body = make([]byte, length)
		_, err = io.ReadFull(b, body)
	default:
		body, err = io.ReadAll(b)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("its answer is cut short: %w", err)
	}
	return code, body, nil
}

func notHTTP(line string, err error) error {
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return fmt.Errorf("what answers there is no engine: %.40q", line)
}

func unchunk(b *bufio.Reader) ([]byte, error) {
	var body bytes.Buffer
	for {
		line, err := b.ReadString('\n')
		if err != nil {
			return nil, io.ErrUnexpectedEOF
		}
		word, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		n, err := strconv.ParseUint(word, 16, 31)
		if err != nil || n > answerMax {
			return nil, fmt.Errorf("a chunk of %q bytes", word)
		}
		if n == 0 {
			return body.Bytes(), nil
		}
		if _, err := io.CopyN(&body, b, int64(n)); err != nil {
			return nil, io.ErrUnexpectedEOF
		}
		if _, err := b.ReadString('\n'); err != nil {
			return nil, io.ErrUnexpectedEOF
		}
	}
}

// query writes the part of a path behind the question mark.
func query(kv ...string) string {
	v := url.Values{}
	for i := 0; i+1 < len(kv); i += 2 {
		v.Set(kv[i], kv[i+1])
	}
	return "?" + v.Encode()
}
