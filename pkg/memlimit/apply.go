package memlimit

import (
	"fmt"
	"strconv"
	"strings"
)

// The cgroup v2 files of the limits.
const (
	fileMemoryMax  = "memory.max"
	fileMemoryHigh = "memory.high"
	fileSwapMax    = "memory.swap.max"
	filePidsMax    = "pids.max"
)

// The systemd unit properties of the limits.
const (
	propMemoryMax  = "MemoryMax"
	propMemoryHigh = "MemoryHigh"
	propSwapMax    = "MemorySwapMax"
	propPidsMax    = "TasksMax"
)

// Property is a systemd unit property of D-Bus type t.
type Property struct {
	Name  string
	Value uint64 // Infinity is no limit
}

// Properties gives the limits that are set as unit properties. Percentages must
// have been resolved.
func (l Limits) Properties() ([]Property, error) {
	if err := l.resolved(); err != nil {
		return nil, err
	}
	var props []Property
	for _, p := range []struct {
		name string
		size Size
	}{
		{propMemoryMax, l.MemoryMax}, {propMemoryHigh, l.MemoryHigh},
		{propSwapMax, l.SwapMax}, {propPidsMax, l.PidsMax},
	} {
		if n, ok := p.size.Value(); ok {
			props = append(props, Property{p.name, n})
		}
	}
	return props, nil
}

// FromProperties reads limits back from unit properties; others are passed over.
func FromProperties(props []Property) Limits {
	var l Limits
	for _, p := range props {
		switch p.Name {
		case propMemoryMax:
			l.MemoryMax = Bytes(p.Value)
		case propMemoryHigh:
			l.MemoryHigh = Bytes(p.Value)
		case propSwapMax:
			l.SwapMax = Bytes(p.Value)
		case propPidsMax:
			l.PidsMax = Bytes(p.Value)
		}
	}
	return l
}

// File is a cgroup v2 control file and what to write to it.
type File struct {
	Name  string // "memory.max"
	Value string // "max" or a number, no newline
}

// Files gives the limits that are set as control files, in an order fit for
// writing: the count of processes, then swap before the memory that would move
// there. Percentages must have been resolved.
func (l Limits) Files() ([]File, error) {
	if err := l.resolved(); err != nil {
		return nil, err
	}
	var files []File
	for _, f := range []struct {
		name string
		size Size
	}{
		{filePidsMax, l.PidsMax}, {fileSwapMax, l.SwapMax},
		{fileMemoryHigh, l.MemoryHigh}, {fileMemoryMax, l.MemoryMax},
	} {
		if f.size.IsSet() {
			files = append(files, File{f.name, fileValue(f.size)})
		}
	}
	return files, nil
}

// FromFiles reads limits back from the content of control files; other files
// are passed over.
func FromFiles(files []File) (Limits, error) {
	var l Limits
	for _, f := range files {
		if err := l.setFile(f.Name, f.Value); err != nil {
			return Limits{}, err
		}
	}
	return l, nil
}

func (l *Limits) setFile(name, content string) error {
	var field *Size
	switch name {
	case fileMemoryMax:
		field = &l.MemoryMax
	case fileMemoryHigh:
		field = &l.MemoryHigh
	case fileSwapMax:
		field = &l.SwapMax
	case filePidsMax:
		field = &l.PidsMax
	default:
		return nil
	}
	size, err := parseFileValue(content)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	*field = size
	return nil
}

// parseFileValue reads what a control file such as memory.max holds: "max" or a
// number, with or without its newline.
func parseFileValue(content string) (Size, error) {
	text := strings.TrimSuffix(content, "\n")
	if text == "max" {
		return Max(), nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return Size{}, fmt.Errorf("%w: %q", ErrSyntax, content)
	}
	return Bytes(n), nil
}

func fileValue(s Size) string {
	n, ok := s.Value()
	if !ok || s.IsMax() {
		return "max"
	}
	return strconv.FormatUint(n, 10)
}

// Mismatch is one ceiling that is not as asked for.
type Mismatch struct {
	File string // "memory.max"
	Want Size
	Got  Size // not set: the file is not there
}

func (m Mismatch) String() string {
	if !m.Got.IsSet() {
		return fmt.Sprintf("%s %v is not in force: no such control", m.File, m.Want)
	}
	return fmt.Sprintf("%s %v is not in force: it is %v", m.File, m.Want, m.Got)
}

// maxPage is the largest page size there is: the kernel rounds bytes down to
// pages.
const maxPage = 64 << 10

// Diff lists which of the limits that l sets are not in force in got, which was
// read back. Bytes may differ by the kernel's rounding to pages. A limit of max
// is in force where the control does not exist.
func (l Limits) Diff(got Limits) []Mismatch {
	var out []Mismatch
	for _, c := range []struct {
		file      string
		want, got Size
		slack     uint64
	}{
		{fileMemoryMax, l.MemoryMax, got.MemoryMax, maxPage},
		{fileMemoryHigh, l.MemoryHigh, got.MemoryHigh, maxPage},
		{fileSwapMax, l.SwapMax, got.SwapMax, maxPage},
		{filePidsMax, l.PidsMax, got.PidsMax, 1},
	} {
		if !c.want.IsSet() || c.want == c.got || c.want.IsMax() && !c.got.IsSet() {
			continue
		}
		want, wok := c.want.Value()
		is, gok := c.got.Value()
		if wok && gok && is <= want && want-is < c.slack {
			continue
		}
		out = append(out, Mismatch{c.file, c.want, c.got})
	}
	return out
}
