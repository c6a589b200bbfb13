package proc

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// The kernel tells who listens, and which ends belong together.
func TestUnixSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	all, err := UnixSockets()
	if err != nil {
		t.Fatal(err)
	}
	listens, served, joined := 0, 0, 0
	for _, inode := range Sockets(os.Getpid()) {
		s := all[inode]
		if s.Name == path && s.Listens {
			listens++
		}
		if s.Name == path && !s.Listens {
			served++
			if all[s.Peer].Peer == inode {
				joined++
			}
		}
	}
	if listens != 1 || served != 1 || joined != 1 {
		t.Errorf("%d listen, %d were accepted, %d have a peer that knows them; want one of each", listens, served, joined)
	}
}

func FuzzParseDiag(f *testing.F) {
	f.Add([]byte{20, 0, 0, 0, 3, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{44, 0, 0, 0, 20, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 10, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 2, 0, 7, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		all := map[string]UnixSocket{}
		_, _ = parseDiag(b, all)
		if len(all) > len(b)/16 {
			t.Fatalf("%d sockets in %d bytes", len(all), len(b))
		}
	})
}
