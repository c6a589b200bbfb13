package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// encodeRecord writes the struct that v points to, its fields in order, then
// what extra has beyond them, sorted.
func encodeRecord(l *layout, v any, extra rawFields) ([]byte, error) {
	var b bytes.Buffer
	if err := encodeStruct(&b, l, reflect.ValueOf(v).Elem(), extra); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func encodeStruct(b *bytes.Buffer, l *layout, v reflect.Value, extra rawFields) error {
	sep := byte('{')
	member := func(name string, write func() error) error {
		key, err := json.Marshal(name)
		if err != nil {
			return err
		}
		b.WriteByte(sep)
		sep = ','
		b.Write(key)
		b.WriteByte(':')
		if err := write(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	for i := range l.fields {
		f := &l.fields[i]
		val := v.Field(f.index)
		if f.omitEmpty && isEmpty(val) {
			continue
		}
		if err := member(f.name, func() error { return encodeValue(b, f, val, extra[f.name]) }); err != nil {
			return err
		}
	}
	unknown := make([]string, 0, len(extra))
	for name := range extra {
		if l.field([]byte(name)) == nil {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		if err := member(name, func() error { return encodeJSON(b, extra[name]) }); err != nil {
			return err
		}
	}
	if sep == '{' {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	return nil
}

func encodeValue(b *bytes.Buffer, f *field, v reflect.Value, extra json.RawMessage) error {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return encodeJSON(b, nil)
		}
		v = v.Elem()
	}
	if f.nested != nil {
		var inner rawFields
		if len(extra) > 0 {
			if err := json.Unmarshal(extra, &inner); err != nil {
				return err
			}
		}
		return encodeStruct(b, f.nested, v, inner)
	}
	switch val := v.Interface().(type) {
	case time.Duration:
		return encodeJSON(b, val.Seconds())
	case time.Time:
		return encodeJSON(b, val.UTC())
	default:
		return encodeJSON(b, val)
	}
}

func encodeJSON(b *bytes.Buffer, v any) error {
	raw, err := json.Marshal(v)
	b.Write(raw)
	return err
}

// isEmpty is encoding/json's meaning of omitempty.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice, reflect.Array, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	default:
		return v.IsZero()
	}
}
