package store

import (
	"fmt"
	"os"
	"path/filepath"
)

// boxlessMark is a file that says that sessions here may have no box any more: a close has
// removed it, and could not end what others run for the session.
const boxlessMark = "boxless"

// MarkBoxless notes that a session here is recorded without a box, for good.
func (s *Store) MarkBoxless() error {
	f, err := os.OpenFile(filepath.Join(s.dirs.State, boxlessMark), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("note that there are sessions without a box: %w", err)
	}
	return f.Close()
}

// MayHaveBoxless says whether there was such a session. Who looks for those inside of another
// one has to read all records then, as no kernel object names them.
func (s *Store) MayHaveBoxless() bool {
	_, err := os.Lstat(filepath.Join(s.dirs.State, boxlessMark))
	return err == nil
}
