package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var july = time.Date(2026, 7, 31, 23, 59, 59, 0, time.UTC)

func appendEvent(t testing.TB, s *Store, e Event) {
	t.Helper()
	if err := s.Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

func messages(events []Event) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString(e.Msg)
	}
	return b.String()
}

func TestHistory(t *testing.T) {
	s := testStore(t)
	if page, err := s.ReadHistory(Filter{}); err != nil || len(page.Events) != 0 {
		t.Errorf("no history: %+v, %v", page, err)
	}
	zone := time.FixedZone("", 2*3600)
	appendEvent(t, s, Event{Time: july, Event: "opened", ID: "aaaaaaaaaa", Name: "web", Msg: "a"})
	appendEvent(t, s, Event{Time: july.Add(2 * time.Second).In(zone), Event: "started", ID: "aaaaaaaaaa", Name: "web", Task: 3, Msg: "b", Detail: json.RawMessage(`{"x":[1]}`)})
	appendEvent(t, s, Event{Time: july.Add(time.Hour), Event: "opened", ID: "bbbbbbbbbb", Msg: "c"})
	appendEvent(t, s, Event{Time: july.AddDate(0, 2, 0), Event: "closed", ID: "aaaaaaaaaa", Name: "web", Msg: "d"})
	for name, want := range map[string]int{"history-2026-07.jsonl": 1, "history-2026-08.jsonl": 2, "history-2026-10.jsonl": 1} {
		data, err := os.ReadFile(filepath.Join(s.dirs.History, name))
		if err != nil || strings.Count(string(data), "\n") != want {
			t.Errorf("%s: %q, %v; want %d lines", name, data, err, want)
		}
		if info, _ := os.Stat(filepath.Join(s.dirs.History, name)); info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v", name, info.Mode())
		}
	}
	for _, c := range []struct {
		filter Filter
		want   string
	}{
		{Filter{}, "abcd"},
		{Filter{Session: "web"}, "abd"},
		{Filter{Session: "bbbbbbbbbb"}, "c"},
		{Filter{Session: "we"}, ""},
		{Filter{Task: 3}, "b"},
		{Filter{Events: []string{"opened", "closed"}}, "acd"},
		{Filter{Since: july.Add(time.Second)}, "bcd"},
		{Filter{Until: july.Add(time.Second)}, "a"},
		{Filter{Since: july, Until: july.Add(time.Hour)}, "ab"},
		{Filter{Since: july.AddDate(1, 0, 0)}, ""},
		{Filter{Limit: 1}, "d"},
		{Filter{Limit: 3}, "bcd"},
		{Filter{Limit: 2, Session: "web"}, "bd"},
	} {
		page, err := s.ReadHistory(c.filter)
		if err != nil || messages(page.Events) != c.want || page.Skipped != 0 {
			t.Errorf("%+v: %q, %d skipped, %v; want %q", c.filter, messages(page.Events), page.Skipped, err, c.want)
		}
	}
	page, _ := s.ReadHistory(Filter{Task: 3})
	if e := page.Events[0]; !e.Time.Equal(july.Add(2*time.Second)) || e.Time.Location() != time.UTC || string(e.Detail) != `{"x":[1]}` || e.UID != os.Geteuid() {
		t.Errorf("%+v", e)
	}
	if e := (Event{Event: "now"}); s.Append(t.Context(), e) == nil {
		page, _ := s.ReadHistory(Filter{Events: []string{"now"}})
		if len(page.Events) != 1 || time.Since(page.Events[0].Time) > time.Minute {
			t.Errorf("an event without a time: %+v", page)
		}
	}
}

func TestHistoryDamage(t *testing.T) {
	s := testStore(t)
	appendEvent(t, s, Event{Time: july, Event: "opened", Msg: "a"})
	path := filepath.Join(s.dirs.History, "history-2026-07.jsonl")
	add := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	add("\n\x00\xff\n{}\n[1]\n" + `{"schema":1,"event":"x"}` + "\n") // a blank line is nobody's loss, 4 others are
	add(strings.Repeat("x", maxReadLine+100_000) + "\n")
	add(`{"schema":2,"time":"2026-07-31T23:59:59Z","event":"new","msg":"b","gpu":{"n":1}}` + "\n")
	add(`{"schema":1,"time":"2026-07-31T`) // a writer that died
	page, err := s.ReadHistory(Filter{})
	if err != nil || messages(page.Events) != "ab" || page.Skipped != 5 {
		t.Errorf("%q, %d skipped, %v; want ab, 5", messages(page.Events), page.Skipped, err)
	}
	if string(page.Events[1].Extra["gpu"]) != `{"n":1}` {
		t.Errorf("unknown field of a newer event: %v", page.Events[1].Extra)
	}
	appendEvent(t, s, Event{Time: july, Event: "closed", Msg: "c"})
	page, err = s.ReadHistory(Filter{})
	if err != nil || messages(page.Events) != "abc" || page.Skipped != 6 {
		t.Errorf("after a torn line: %q, %d skipped, %v; want abc, 6", messages(page.Events), page.Skipped, err)
	}
	// One month that cannot be read costs that month.
	appendEvent(t, s, Event{Time: july.AddDate(0, 1, 0), Event: "closed", Msg: "d"})
	if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	page, err = s.ReadHistory(Filter{})
	if bad, ok := errors.AsType[*HistoryError](err); !ok || bad.Path != path || !errors.Is(err, ErrNotRegular) || messages(page.Events) != "d" {
		t.Errorf("%q, %v; want d and an error for %s", messages(page.Events), err, path)
	}
	if err := s.Append(t.Context(), Event{Time: july, Event: "x"}); !errors.Is(err, ErrNotRegular) {
		t.Errorf("Append to a FIFO = %v", err)
	}
}

func TestAppendSize(t *testing.T) {
	s := testStore(t)
	big, err := json.Marshal(strings.Repeat("x", 2*MaxLine))
	if err != nil {
		t.Fatal(err)
	}
	appendEvent(t, s, Event{Time: july, Event: "started", Detail: big})
	page, err := s.ReadHistory(Filter{})
	if want := fmt.Sprintf(`{"dropped_bytes":%d}`, len(big)); err != nil || len(page.Events) != 1 || string(page.Events[0].Detail) != want {
		t.Errorf("%+v, %v; want detail %s", page, err, want)
	}
	err = s.Append(t.Context(), Event{Event: "x", Msg: strings.Repeat("x", MaxLine)})
	if _, ok := errors.AsType[*HistoryError](err); !ok || !errors.Is(err, ErrTooLarge) {
		t.Errorf("Append = %v, want ErrTooLarge", err)
	}
	if err := s.Append(t.Context(), Event{}); err == nil {
		t.Error("an event without a kind was appended")
	}
	if err := s.Append(t.Context(), Event{Event: "x", Detail: json.RawMessage("{")}); err == nil {
		t.Error("an event with a broken detail was appended")
	}
}

func TestAppendRace(t *testing.T) {
	s := testStore(t)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for range 10 {
				appendEvent(t, s, Event{Time: july, Event: "x", Task: i + 1, Msg: strings.Repeat("m", 3000+i)})
			}
		})
	}
	wg.Wait()
	page, err := s.ReadHistory(Filter{})
	if err != nil || len(page.Events) != 500 || page.Skipped != 0 {
		t.Errorf("%d events, %d skipped, %v; want 500", len(page.Events), page.Skipped, err)
	}
}

// A lock that somebody holds for ever delays history, and does not stop it.
func TestAppendWithoutLock(t *testing.T) {
	s := testStore(t)
	appendEvent(t, s, Event{Time: july, Event: "x"})
	fd, err := openFile(filepath.Join(s.dirs.History, monthFile(july)), unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	appendEvent(t, s, Event{Time: july, Event: "x"})
	if page, err := s.ReadHistory(Filter{}); err != nil || len(page.Events) != 2 {
		t.Errorf("%+v, %v", page, err)
	}
}

func TestHistoryForeign(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a file away")
	}
	s := testStore(t)
	appendEvent(t, s, Event{Time: july, Event: "x"})
	path := filepath.Join(s.dirs.History, monthFile(july))
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ReadHistory(Filter{}); !errors.Is(err, ErrForeign) {
		t.Errorf("ReadHistory = %v, want ErrForeign", err)
	}
	if err := s.Append(t.Context(), Event{Time: july, Event: "x"}); !errors.Is(err, ErrForeign) {
		t.Errorf("Append = %v, want ErrForeign", err)
	}
	if err := os.Chown(s.dirs.History, 12345, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ReadHistory(Filter{}); !errors.Is(err, ErrForeign) {
		t.Errorf("ReadHistory of a foreign directory = %v, want ErrForeign", err)
	}
}
