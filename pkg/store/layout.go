package store

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"time"
)

// layout is how a struct is stored: what its json tags say, read once.
type layout struct{ fields []field }

type field struct {
	index     int
	name      string
	omitEmpty bool
	duration  bool
	nested    *layout // for structs, and pointers to them, that are read field by field
}

// The layouts of the records, made at first use and the same ever after.
var (
	sessionLayout = sync.OnceValue(layoutOf[Session])
	taskLayout    = sync.OnceValue(layoutOf[Task])
	eventLayout   = sync.OnceValue(layoutOf[Event])
)

func layoutOf[T any]() *layout { return newLayout(reflect.TypeFor[T]()) }

func newLayout(t reflect.Type) *layout {
	l := &layout{}
	for i := range t.NumField() {
		sf := t.Field(i)
		name, opts, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if name == "" || name == "-" || !sf.IsExported() {
			continue
		}
		f := field{index: i, name: name, omitEmpty: opts == "omitempty", duration: sf.Type == reflect.TypeFor[time.Duration]()}
		inner := sf.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		// time.Time and the like are structs that read themselves.
		if inner.Kind() == reflect.Struct && !reflect.PointerTo(inner).Implements(reflect.TypeFor[json.Unmarshaler]()) {
			f.nested = newLayout(inner)
		}
		l.fields = append(l.fields, f)
	}
	return l
}

// field finds a key, exactly; nil if it is none of ours.
func (l *layout) field(key []byte) *field {
	for i := range l.fields {
		if l.fields[i].name == string(key) {
			return &l.fields[i]
		}
	}
	return nil
}
