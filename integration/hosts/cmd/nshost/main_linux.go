// Nshost runs one command in a host that lives just as long: a systemd in
// namespaces, or with -vm a QEMU guest. See package hosts for examples.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sessionbox/sessionbox/integration/hosts"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	code, err := run(ctx, os.Args[1:])
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "nshost:", err)
	}
	os.Exit(code)
}

// options are the command line.
type options struct {
	gen    string
	route  string
	linger bool
	with   string
	vm     bool
	memory int
	swap   int
	files  []hosts.File
	env    []string
	args   []string
}

func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("nshost", flag.ContinueOnError)
	fs.StringVar(&o.gen, "gen", string(hosts.Bookworm), "Debian generation: bullseye, bookworm or trixie")
	fs.StringVar(&o.route, "route", string(hosts.AsRoot), "where the command runs: enter, root, ssh or manager")
	fs.BoolVar(&o.linger, "linger", false, "keep the user manager running without a login")
	fs.StringVar(&o.with, "with", "", "more in the root: containers")
	fs.BoolVar(&o.vm, "vm", false, "boot a QEMU guest instead of a systemd in namespaces")
	fs.IntVar(&o.memory, "memory", 1024, "with -vm: memory of the guest in MiB")
	fs.IntVar(&o.swap, "swap", 0, "with -vm: swap of the guest in MiB")
	fs.Func("copy", "`SRC:DST` copies a file or directory in (with -vm: DST below "+hosts.PayloadDir+"); may be repeated", func(v string) error {
		src, dst, ok := strings.Cut(v, ":")
		if !ok || !strings.HasPrefix(dst, "/") {
			return errors.New("want SRC:DST with an absolute DST")
		}
		o.files = append(o.files, hosts.File{Src: src, Dst: dst})
		return nil
	})
	fs.Func("e", "`NAME=VALUE` adds to the environment of the command; may be repeated", func(v string) error {
		if !strings.Contains(v, "=") {
			return errors.New("want NAME=VALUE")
		}
		o.env = append(o.env, v)
		return nil
	})
	if err := fs.Parse(args); err != nil {
		return options{}, err
	}
	o.args = fs.Args()
	return o, nil
}

// run returns 125 for failures of its own, as sessionbox does.
func run(ctx context.Context, args []string) (int, error) {
	o, err := parse(args)
	if err != nil {
		return 2, err
	}
	route, err := hosts.ParseRoute(o.route)
	if err != nil {
		return 2, err
	}
	root, err := openRoot(ctx, o)
	if err != nil {
		return 125, err
	}
	defer root.Close()
	if o.vm {
		return runInVM(ctx, root, route, o)
	}
	return runInNamespaces(ctx, root, route, o)
}

func openRoot(ctx context.Context, o options) (*hosts.Root, error) {
	gen := hosts.Generation(o.gen)
	switch o.with {
	case "":
		return hosts.OpenRoot(ctx, gen, os.Stderr)
	case "containers":
		return hosts.OpenVariant(ctx, gen, hosts.Containers(gen), os.Stderr)
	}
	return nil, fmt.Errorf("-with %s: no such root", o.with)
}

func runInNamespaces(ctx context.Context, root *hosts.Root, route hosts.Route, o options) (code int, err error) {
	h, err := hosts.Boot(ctx, root, hosts.Options{Linger: o.linger, Files: o.files})
	if err != nil {
		return 125, err
	}
	defer func() {
		if closeErr := h.Close(); closeErr != nil {
			code, err = 125, errors.Join(err, closeErr)
		}
	}()
	if len(o.args) == 0 {
		fmt.Fprintf(os.Stderr, "nshost: %s is up in %s; a root shell in it:\n  nsenter -t %d -m -p -C -u -i -n -r -w bash -l\nCtrl-C ends it\n",
			root.Generation, h.CgroupPath(), h.Pid())
		<-ctx.Done()
		return 0, nil
	}
	err = h.Run(ctx, hosts.Command{
		Route: route, Args: o.args, Env: o.env,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if code, ok := hosts.ExitCode(err); ok {
		return code, nil
	}
	return 125, err
}
