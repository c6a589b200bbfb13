package hosts

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A File is a file or directory of the machine that a host gets.
type File struct {
	Src string // on the machine
	Dst string // in the host, absolute
}

// copyTo copies the file to dst below root. Modes are kept, everything belongs to
// root, links in the source are followed.
func (f File) copyTo(root *os.Root, dst string) error {
	dst = strings.TrimPrefix(filepath.Clean(dst), "/")
	if err := root.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return fmt.Errorf("copy %s: %w", f.Src, err)
	}
	err := filepath.WalkDir(f.Src, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(f.Src, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		if d.IsDir() {
			return root.MkdirAll(to, 0o755)
		}
		return copyFile(root, path, to)
	})
	if err != nil {
		return fmt.Errorf("copy %s: %w", f.Src, err)
	}
	return nil
}

func copyFile(root *os.Root, src, dst string) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := root.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return root.Chmod(dst, info.Mode().Perm()) // whatever our umask is
}
