package cli

import (
	"runtime"
	"syscall"
	"testing"
)

// Who hears that the session is to be closed before its command ended looks once
// whether to hurry: that has to be said by then.
func TestSecondInterruptHurries(t *testing.T) {
	for range 2000 {
		r := &running{hurry: make(chan struct{}), stop: make(chan struct{}), ints: 1}
		hurried := make(chan bool)
		go func() {
			for {
				select {
				case <-r.stop:
					hurried <- r.hurried()
					return
				default:
					runtime.Gosched()
				}
			}
		}()
		r.signal(syscall.SIGINT)
		if !<-hurried {
			t.Fatal("the close began without knowing that it is to kill at once")
		}
	}
}
