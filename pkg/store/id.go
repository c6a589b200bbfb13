package store

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

const (
	idLen   = 10
	idChars = "abcdefghijklmnopqrstuvwxyz0123456789"
	maxName = 64
)

// NewID makes a session id: 10 random characters of a-z0-9 (51 bits), the first
// a letter so that no id looks like a number.
func NewID() string {
	id := make([]byte, 0, idLen)
	var buf [32]byte
	for {
		rand.Read(buf[:]) // never fails, see crypto/rand
		for _, b := range buf {
			n := len(idChars)
			if len(id) == 0 {
				n = 26
			}
			if int(b) >= 256/n*n {
				continue // the rest of the byte's range would favour some
			}
			if id = append(id, idChars[int(b)%n]); len(id) == idLen {
				return string(id)
			}
		}
	}
}

// NewCookie makes the secret that marks a session's processes: 128 random bits
// in hex.
func NewCookie() string {
	var buf [16]byte
	rand.Read(buf[:])
	return hex.EncodeToString(buf[:])
}

// ValidID tells whether s has the form of a session id, [a-z0-9]{10}.
func ValidID(s string) bool {
	if len(s) != idLen {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// ValidName tells whether s may name a session: [A-Za-z0-9][A-Za-z0-9._-]{0,63}.
func ValidName(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// SplitRef takes SESSION or SESSION/TASK apart. The session is not looked up and
// may be "."; task is 0 when none is given.
func SplitRef(ref string) (session string, task int, err error) {
	session, num, found := strings.Cut(ref, "/")
	if session == "" {
		return "", 0, fmt.Errorf("%q names no session: want SESSION or SESSION/TASK", ref)
	}
	if !found {
		return session, 0, nil
	}
	task, err = parseTask(num)
	if err != nil {
		return "", 0, fmt.Errorf("%q: %w", ref, err)
	}
	return session, task, nil
}

// maxTask bounds task numbers, so that a corrupt hint cannot end the numbering.
const maxTask = 1 << 30

// parseTask reads a task number in its only form: decimal, no sign, no zeros in
// front.
func parseTask(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxTask || strconv.Itoa(n) != s {
		return 0, fmt.Errorf("%q is not a task number", s)
	}
	return n, nil
}
