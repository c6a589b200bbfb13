package guard

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// As much of HTTP as asking for metrics takes: one request on a connection, no body.
// See exposition.go for why it is not net/http.

const (
	askTime = 5 * time.Second  // to ask
	getTime = 10 * time.Second // to take the answer
	askMax  = 8 << 10          // bytes of a request
	askers  = 4                // at once; the others wait
)

// accept answers whoever connects until the listener is closed.
func accept(ctx context.Context, l net.Listener, write func(context.Context, io.Writer) error) {
	slots := make(chan struct{}, askers)
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, for a moment
			time.Sleep(100 * time.Millisecond)
			continue
		}
		slots <- struct{}{}
		go func() {
			defer func() { c.Close(); <-slots }()
			answer(ctx, c, write)
		}()
	}
}

func answer(ctx context.Context, c net.Conn, write func(context.Context, io.Writer) error) {
	c.SetDeadline(time.Now().Add(askTime))
	method, path, ok := request(bufio.NewReader(io.LimitReader(c, askMax)))
	status, body := "200 OK", &bytes.Buffer{}
	switch {
	case !ok:
		status = "400 Bad Request"
	case method != "GET" && method != "HEAD":
		status = "405 Method Not Allowed"
	case path != "/metrics":
		status = "404 Not Found"
	default:
		if err := write(ctx, body); err != nil {
			status = "500 Internal Server Error"
			body.Reset()
			fmt.Fprintln(body, err)
		}
	}
	if status != "200 OK" && body.Len() == 0 {
		fmt.Fprintf(body, "%s: the metrics are at /metrics\n", status[4:])
	}
	c.SetDeadline(time.Now().Add(getTime))
	fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: %d\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n", status, body.Len())
	if method != "HEAD" {
		body.WriteTo(c)
	}
}

// request reads the head of a request.
func request(r *bufio.Reader) (method, path string, ok bool) {
	line, err := r.ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) != 3 || !strings.HasPrefix(words[2], "HTTP/1.") {
		return "", "", false
	}
	for { // what else it says changes nothing; but it has to be taken
		h, err := r.ReadString('\n')
		if err != nil {
			return "", "", false
		}
		if strings.TrimRight(h, "\r\n") == "" {
			path, _, _ = strings.Cut(words[1], "?")
			return words[0], path, true
		}
	}
}
