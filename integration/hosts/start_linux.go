package hosts

import (
	"os/exec"
	"runtime"
	"syscall"
)

// A process is a command whose life is tied to ours.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the command was waited for
	err  error         // what Wait said; read it after done
}

// startTied starts cmd so that the kernel kills it when this process dies, however
// it dies. PR_SET_PDEATHSIG is about the thread that forked, not the process: the
// thread must live as long as the child, so a goroutine holds on to it.
func startTied(cmd *exec.Cmd) (*process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}
