package store

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/sessionbox/sessionbox/pkg/internal/watch"
)

// Follow yields events as they are appended, in every month's file, from a place
// in the history on: Page.End, or the zero Cursor for what comes from now. It
// ends when ctx does, without an error. A line that is no event is yielded as a
// *BadLine, a file that cannot be read as a *HistoryError; both leave the
// sequence going. A month that was truncated or replaced is read from its start,
// as far as that shows: where it was read to, a line must end.
//
// On Linux inotify wakes it, with a look every two seconds for file systems that
// do not report everything; elsewhere it looks five times a second.
func (s *Store) Follow(ctx context.Context, from Cursor, f Filter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		cursor, err := from.clone(), error(nil)
		if from.offsets == nil {
			cursor, err = s.end()
		}
		if err != nil && !yield(Event{}, &HistoryError{Path: s.dirs.History, Err: err}) {
			return
		}
		w := watch.New(s.dirs.History)
		defer w.Close()
		failing := map[string]string{} // what was last reported, by file
		for ctx.Err() == nil {
			if !s.catchUp(cursor, f, failing, yield) {
				return
			}
			w.Wait(ctx)
		}
	}
}

// catchUp yields what has been appended since the cursor, which it moves. It
// returns false when the consumer has had enough.
func (s *Store) catchUp(c Cursor, f Filter, failing map[string]string, yield func(Event, error) bool) bool {
	more := true
	report := func(path string, err error) {
		if err == nil {
			delete(failing, path)
		} else if failing[path] != err.Error() && !errors.Is(err, fs.ErrNotExist) {
			failing[path] = err.Error()
			more = yield(Event{}, &HistoryError{Path: path, Err: err})
		}
	}
	names, err := s.months()
	if report(s.dirs.History, err); !more {
		return false
	}
	for _, name := range names {
		path := filepath.Join(s.dirs.History, name)
		if info, err := os.Lstat(path); err == nil && info.Size() == c.offsets[name] {
			continue
		}
		end, err := s.readMonth(path, c.offsets[name], func(e Event, err error) bool {
			if err != nil || f.fits(e) {
				more = yield(e, err)
			}
			return more
		})
		c.offsets[name] = end
		if !more {
			return false
		}
		if report(path, err); !more {
			return false
		}
	}
	return true
}
