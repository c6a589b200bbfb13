package store

import (
	"bytes"
	"encoding/json"
	"iter"
	"unicode/utf8"
)

// members takes a JSON object apart: each key, unquoted, with its value as it is
// written. The JSON must be valid and start with '{'; it is not checked again.
func members(data []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for rest := trim(data[1:]); rest[0] == '"'; {
			key, after := cutValue(rest)
			value, after := cutValue(trim(trim(after)[1:])) // past the colon
			if !yield(unquote(key), value) {
				return
			}
			rest = trim(trim(after)[1:]) // past the comma, or past the end
			if len(rest) == 0 {
				return
			}
		}
	}
}

// cutValue splits off the value that b starts with.
func cutValue(b []byte) (value, rest []byte) {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = endOfString(b, i)
			if depth == 0 {
				return b[:i+1], b[i+1:]
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 { // the end of the object around a number or word
				return b[:i], b[i:]
			}
			if depth--; depth == 0 {
				return b[:i+1], b[i+1:]
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return b[:i], b[i:]
			}
		}
	}
	return b, nil
}

// endOfString finds the quote that closes the one at i.
func endOfString(b []byte, i int) int {
	for i++; i < len(b) && b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return min(i, len(b)-1)
}

func unquote(key []byte) []byte {
	if bytes.IndexByte(key, '\\') < 0 && utf8.Valid(key) {
		return key[1 : len(key)-1]
	}
	var s string
	if json.Unmarshal(key, &s) != nil {
		return key[1 : len(key)-1]
	}
	return []byte(s)
}

// trim drops JSON's white space in front.
func trim(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }

// kindOf names a JSON value for an error.
func kindOf(b []byte) string {
	switch b[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}
