package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// Config is what the files say. Its zero value is that of no file.
type Config struct {
	// Slice are the ceilings of all sessions together.
	Slice memlimit.Limits
	// Session are the defaults of a new session.
	Session Session
	// Guard is how the sessions are watched.
	Guard Guard
	// Memory is what is done when memory runs out.
	Memory Memory
	// Files are those that were read, in the order they apply.
	Files []string
}

// Session are defaults that open uses where no flag says otherwise.
type Session struct {
	Limits  memlimit.Limits
	Grace   *time.Duration // nil: not set; 0 is no grace
	Backend string         // "" (not set), auto, systemd, cgroup or lineage
}

// Guard is how the sessions of a user are watched.
type Guard struct {
	Metrics string // where they are served, see ParseAddress; "" (not set): nowhere
	Start   string // "" (not set), auto or never
}

// Memory is what is done when memory runs out.
type Memory struct {
	Warn   string // "" (not set), on or off: whether sessions are warned of
	OnWarn string // a command line for the shell; "" (not set): none
	Notify string // "" (not set), none or desktop
	// Steps are those that may be taken; nil (not set): to warn.
	Steps *memlimit.Steps
	// IdleAfter is when a session may be hibernated; nil: not set.
	IdleAfter *time.Duration
	// TakeAttached allows to touch a session that somebody has in front, if it is
	// beyond its own ceiling; nil: not set, which is no.
	TakeAttached *bool
}

// Paths gives where config.toml may be, the system's first: /etc/sessionbox, then
// sessionbox in XDG_CONFIG_HOME or in .config of home. Relative directories are
// ignored.
func Paths(lookup func(string) (string, bool), home string) []string {
	paths := []string{"/etc/sessionbox/config.toml"}
	dir, _ := lookup("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(home, ".config")
	}
	if filepath.IsAbs(dir) {
		paths = append(paths, filepath.Join(dir, "sessionbox", "config.toml"))
	}
	return paths
}

// Load reads the files at paths; later ones override earlier ones by key. Files
// that do not exist are passed over. The error names every file that is wrong,
// not just the first.
func Load(paths ...string) (Config, error) {
	var cfg Config
	var errs []error
	for _, path := range paths {
		data, err := readFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = cfg.add(data)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("config %s: %w", path, err))
			continue
		}
		cfg.Files = append(cfg.Files, path)
	}
	if len(errs) == 0 {
		if err := cfg.validate(); err != nil {
			errs = append(errs, fmt.Errorf("config %s: %w", strings.Join(cfg.Files, " and "), err))
		}
	}
	if len(errs) > 0 {
		return Config{}, errors.Join(errs...)
	}
	return cfg, nil
}

// maxFile bounds what is read by mistake (a device, a log).
const maxFile = 1 << 20

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("more than %d bytes are no config", maxFile)
	}
	return data, err
}

// file is config.toml as it is written.
type file struct {
	Slice   limits  `toml:"slice"`
	Session session `toml:"session"`
	Guard   guard   `toml:"guard"`
	Memory  memory  `toml:"memory"`
}

type memory struct {
	Warn         onOff     `toml:"warn"`
	OnWarn       *string   `toml:"on_warn"`
	Notify       notify    `toml:"notify"`
	Steps        []string  `toml:"steps"`
	IdleAfter    *duration `toml:"idle_after"`
	TakeAttached *bool     `toml:"take_attached"`
}

type limits struct {
	MemoryMax  size  `toml:"memory_max"`
	MemoryHigh size  `toml:"memory_high"`
	SwapMax    size  `toml:"swap_max"`
	PidsMax    count `toml:"pids_max"`
}

type session struct {
	limits
	Grace   *duration `toml:"grace"`
	Backend backend   `toml:"backend"`
}

type guard struct {
	Metrics address `toml:"metrics"`
	Start   start   `toml:"start"`
}

func (l limits) limits() memlimit.Limits {
	return memlimit.Limits{
		MemoryMax: l.MemoryMax.Size, MemoryHigh: l.MemoryHigh.Size,
		SwapMax: l.SwapMax.Size, PidsMax: l.PidsMax.Size,
	}
}

// add puts what one file says on top.
func (c *Config) add(data []byte) error {
	var f file
	meta, err := toml.Decode(string(data), &f)
	if err != nil {
		return err // it says the line
	}
	if err := unknownKeys(data, meta); err != nil {
		return err
	}
	c.Slice = f.Slice.limits().Merge(c.Slice)
	c.Session.Limits = f.Session.limits.limits().Merge(c.Session.Limits)
	if f.Session.Grace != nil {
		d := time.Duration(*f.Session.Grace)
		c.Session.Grace = &d
	}
	if f.Session.Backend != "" {
		c.Session.Backend = string(f.Session.Backend)
	}
	if f.Guard.Metrics != "" {
		c.Guard.Metrics = string(f.Guard.Metrics)
	}
	if f.Guard.Start != "" {
		c.Guard.Start = string(f.Guard.Start)
	}
	return c.Memory.add(&f.Memory)
}

// add puts what one file says on top.
func (m *Memory) add(f *memory) error {
	if f.Warn != "" {
		m.Warn = string(f.Warn)
	}
	if f.OnWarn != nil {
		m.OnWarn = *f.OnWarn
	}
	if f.Notify != "" {
		m.Notify = string(f.Notify)
	}
	if f.Steps != nil {
		steps, err := memlimit.ParseSteps(strings.Join(f.Steps, ","))
		if err != nil {
			return fmt.Errorf("[memory] steps: %w", err)
		}
		m.Steps = &steps
	}
	if f.IdleAfter != nil {
		d := time.Duration(*f.IdleAfter)
		m.IdleAfter = &d
	}
	if f.TakeAttached != nil {
		m.TakeAttached = f.TakeAttached
	}
	return nil
}

func (c *Config) validate() error {
	var errs []error
	if err := c.Slice.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("[slice]: %w", err))
	}
	if err := c.Session.Limits.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("[session]: %w", err))
	}
	return errors.Join(errs...)
}
