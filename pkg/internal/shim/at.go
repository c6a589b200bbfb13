package shim

import "os"

// queue has at queue a job. Each call leaves a file that says so, unless it failed: then there
// is no job.
func (s *shim) queue(args []string) int {
	f, err := os.CreateTemp(s.dir.path(jobsName), "call-")
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return s.unnoted(err)
	}
	stop, ran := run(s.child(args))
	defer stop()
	if ran != nil {
		os.Remove(f.Name()) // if it stays, a close asks for jobs in vain
	}
	return s.exit(ran)
}
