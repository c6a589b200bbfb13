package shim

import (
	"fmt"
	"os"
	"strings"
)

// caller says who called: the session's task, and the process.
func caller() string {
	var parts []string
	if b, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		for _, part := range strings.FieldsFunc(string(b), func(r rune) bool { return r == '/' || r == '\n' }) {
			if n, ok := strings.CutPrefix(part, "task-"); ok && strings.Trim(n, "0123456789") == "" {
				parts = append(parts, "task "+n)
				break
			}
		}
	}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", os.Getppid())); err == nil {
		parts = append(parts, fmt.Sprintf("%s (%d)", strings.TrimSpace(string(b)), os.Getppid()))
	}
	return strings.Join(parts, ", ")
}
