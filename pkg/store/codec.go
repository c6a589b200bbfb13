package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"
	"unicode/utf8"
)

// The codec differs from encoding/json in three ways that records need: keys it
// does not know are returned and written back, also those inside known objects;
// keys match exactly (encoding/json ignores case, which would make one unknown
// key overwrite a known field); a time.Duration is seconds as a JSON number and
// a time.Time is in UTC. It is also faster by half, and a listing decodes a
// thousand records.

type rawFields = map[string]json.RawMessage

// decodeRecord reads the object in data into the struct that v points to and
// returns what v has no field for.
func decodeRecord(l *layout, data []byte, v any) (rawFields, error) {
	if !json.Valid(data) {
		var x any
		return nil, json.Unmarshal(data, &x) // says what is wrong, and where
	}
	return decodeStruct(l, trim(data), reflect.ValueOf(v).Elem())
}

// decodeStruct reads valid JSON. Of a key that occurs twice the last one counts.
func decodeStruct(l *layout, data []byte, v reflect.Value) (extra rawFields, err error) {
	if data[0] != '{' {
		return nil, fmt.Errorf("%s where an object is wanted", kindOf(data))
	}
	keep := func(key string, raw []byte) {
		if extra == nil {
			extra = rawFields{}
		}
		extra[key] = bytes.Clone(raw) // data is the caller's to reuse
	}
	for key, raw := range members(data) {
		f := l.field(key)
		if f == nil {
			keep(string(key), raw)
			continue
		}
		delete(extra, f.name)
		field := v.Field(f.index)
		field.SetZero()
		if raw[0] == 'n' { // null
			continue
		}
		inner, err := decodeValue(f, raw, field)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		if len(inner) > 0 {
			b, err := json.Marshal(inner)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.name, err)
			}
			keep(f.name, b)
		}
	}
	return extra, nil
}

func decodeValue(f *field, raw []byte, v reflect.Value) (rawFields, error) {
	switch {
	case f.nested != nil && v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return decodeStruct(f.nested, raw, v.Elem())
	case f.nested != nil:
		return decodeStruct(f.nested, raw, v)
	case f.duration:
		d, err := parseSeconds(raw)
		v.SetInt(int64(d))
		return nil, err
	}
	if decodePlain(raw, v) {
		return nil, nil
	}
	return nil, json.Unmarshal(raw, v.Addr().Interface())
}

// decodePlain reads the values that records mostly consist of; false leaves the
// others, and everything that is wrong, to encoding/json.
func decodePlain(raw []byte, v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		if raw[0] != '"' || bytes.IndexByte(raw, '\\') >= 0 || !utf8.Valid(raw) {
			return false
		}
		v.SetString(string(raw[1 : len(raw)-1]))
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil || v.OverflowInt(n) {
			return false
		}
		v.SetInt(n)
	case reflect.Uint64:
		n, err := strconv.ParseUint(string(raw), 10, 64)
		if err != nil {
			return false
		}
		v.SetUint(n)
	default:
		return false
	}
	return true
}

func parseSeconds(raw []byte) (time.Duration, error) {
	var seconds float64
	if err := json.Unmarshal(raw, &seconds); err != nil {
		return 0, err
	}
	ns := math.Round(seconds * 1e9)
	if math.Abs(ns) >= 1<<63 {
		return 0, errors.New("too many seconds")
	}
	return time.Duration(ns), nil
}
