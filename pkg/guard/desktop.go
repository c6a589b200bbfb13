package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// desktop tells of memory on the user's desktop, by the bus of the user's session. A
// bus is never launched: where there is none there is no desktop.
type desktop struct {
	// shown are the notices that are up, by place: a later one replaces it.
	shown map[memlimit.Place]uint32
}

// noticeTime bounds one notice.
const noticeTime = 2 * time.Second

var errNoDesktop = errors.New("there is no session bus")

func (d *desktop) notify(ctx context.Context, w *memlimit.Warning) error {
	path := busPath()
	if path == "" {
		return errNoDesktop
	}
	ctx, cancel := context.WithTimeout(ctx, noticeTime)
	defer cancel()
	c, err := dbus.Connect("unix:path="+path, dbus.WithContext(ctx))
	if err != nil {
		return err
	}
	defer c.Close()
	title := "sessionbox: memory of " + w.Who.Name
	urgency := byte(1)
	if w.Level >= memlimit.Critical {
		urgency = 2
	}
	var id uint32
	err = c.Object("org.freedesktop.Notifications", "/org/freedesktop/Notifications").CallWithContext(ctx,
		"org.freedesktop.Notifications.Notify", 0, "sessionbox", d.shown[w.Who], "dialog-warning", title, w.String(),
		[]string{}, map[string]dbus.Variant{"urgency": dbus.MakeVariant(urgency), "category": dbus.MakeVariant("device.error")}, int32(-1)).Store(&id)
	if err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	if d.shown == nil {
		d.shown = map[memlimit.Place]uint32{}
	}
	d.shown[w.Who] = id
	if w.Change == memlimit.Cleared {
		delete(d.shown, w.Who)
	}
	return nil
}

// busPath is the socket of the user's bus, "" if there is none.
func busPath() string {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		dir = fmt.Sprintf("/run/user/%d", os.Getuid())
	}
	path := filepath.Join(dir, "bus")
	if fi, err := os.Stat(path); err != nil || fi.Mode().Type() != os.ModeSocket {
		return ""
	}
	return path
}
