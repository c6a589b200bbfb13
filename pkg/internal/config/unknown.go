package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// unknownKeys is the error for keys that the file has and we do not.
func unknownKeys(data []byte, meta toml.MetaData) error {
	known := knownKeys()
	var errs []error
	var table toml.Key // an unknown table is one mistake, not one per key
	for _, key := range meta.Undecoded() {
		if len(table) > 0 && len(key) > len(table) && slices.Equal(key[:len(table)], table) {
			continue
		}
		table = key
		msg := fmt.Sprintf("unknown key %q", key.String())
		if line := lineOf(string(data), key); line > 0 {
			msg = fmt.Sprintf("line %d: %s", line, msg)
		}
		if near := nearest(key.String(), known); near != "" {
			msg += fmt.Sprintf("; did you mean %q?", near)
		} else {
			msg += "; known are " + strings.Join(known, ", ")
		}
		errs = append(errs, errors.New(msg))
	}
	return errors.Join(errs...)
}

// knownKeys lists "slice.memory_max" and so on, from the types that are decoded.
func knownKeys() []string {
	var keys []string
	var walk func(prefix string, t reflect.Type)
	walk = func(prefix string, t reflect.Type) {
		for f := range t.Fields() {
			name := f.Tag.Get("toml")
			switch {
			case f.Anonymous:
				walk(prefix, f.Type)
			case prefix == "":
				walk(name+".", f.Type)
			default:
				keys = append(keys, prefix+name)
			}
		}
	}
	walk("", reflect.TypeFor[file]())
	return keys
}

// lineOf finds the line that a key is on, 0 if it is written in a way that this
// simple look misses (quoted keys, inline tables). The decoder does not tell.
func lineOf(text string, key toml.Key) int {
	var table string
	want := key.String()
	line := 0
	for raw := range strings.Lines(text) {
		line++
		s := strings.TrimSpace(raw)
		if rest, ok := strings.CutPrefix(s, "["); ok {
			table, _, _ = strings.Cut(strings.Trim(rest, "["), "]")
			table = strings.TrimSpace(table)
			if table == want || strings.HasPrefix(table, want+".") {
				return line
			}
			continue
		}
		name, _, ok := strings.Cut(s, "=")
		if !ok {
			continue
		}
		full := strings.TrimSpace(name)
		if table != "" {
			full = table + "." + full
		}
		if full == want || strings.HasPrefix(full, want+".") {
			return line
		}
	}
	return 0
}

// nearest is the known key that is probably meant: the same key in another
// table, or one with few letters changed. "" if none is near.
func nearest(key string, known []string) string {
	last := key[strings.LastIndexByte(key, '.')+1:]
	for _, k := range known {
		if k[strings.LastIndexByte(k, '.')+1:] == last {
			return k
		}
	}
	best, bestDistance := "", 4
	for _, k := range known {
		if d := distance(key, k); d < bestDistance && d*3 <= len(key) {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance counts the letters to insert, drop or change to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
