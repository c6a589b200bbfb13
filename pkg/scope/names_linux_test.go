package scope

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

func TestNames(t *testing.T) {
	s := Spec{ID: "abcdefghij"}
	nested := Spec{ID: "k123456789", Anchor: []string{"/bin/true"}, Parents: []string{"abcdefghij", "mmmmmmmmmm"}}
	for got, want := range map[string]string{
		s.SliceUnit():       "sessionbox-abcdefghij.slice",
		s.parentUnit():      "sessionbox.slice",
		s.serviceUnit():     "sessionbox-abcdefghij-main.service",
		s.scopeUnit():       "sessionbox-abcdefghij-main.scope",
		nested.SliceUnit():  "sessionbox-abcdefghij-mmmmmmmmmm-k123456789.slice",
		nested.parentUnit(): "sessionbox-abcdefghij-mmmmmmmmmm.slice",
		// A service does not nest by name; its Slice= says where it lies.
		nested.serviceUnit(): "sessionbox-k123456789-main.service",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if v := value(t, nested, "Slice"); v != nested.SliceUnit() {
		t.Errorf("Slice=%v", v)
	}
}

func value(t *testing.T, s Spec, name string) any {
	t.Helper()
	for _, p := range s.serviceProps() {
		if p.Name == name {
			return p.Value.Value()
		}
	}
	t.Fatalf("no %s", name)
	return nil
}

func plainSpec() Spec { return Spec{ID: "abcdefghij", Anchor: []string{"/bin/true", "a"}} }

func TestSpecCheck(t *testing.T) {
	if err := plainSpec().check(); err != nil {
		t.Fatal(err)
	}
	deep := plainSpec()
	for range 30 {
		deep.Parents = append(deep.Parents, "bbbbbbbbbb")
	}
	for name, bad := range map[string]Spec{
		"no id":             {Anchor: []string{"/bin/true"}},
		"short id":          {ID: "abc", Anchor: []string{"/bin/true"}},
		"id that nests":     {ID: "abcde-fghi", Anchor: []string{"/bin/true"}},
		"upper case":        {ID: "ABCDEFGHIJ", Anchor: []string{"/bin/true"}},
		"bad parent":        {ID: "abcdefghij", Parents: []string{"x"}, Anchor: []string{"/bin/true"}},
		"no anchor":         {ID: "abcdefghij"},
		"relative anchor":   {ID: "abcdefghij", Anchor: []string{"true"}},
		"name is too long":  deep,
		"empty anchor path": {ID: "abcdefghij", Anchor: []string{""}},
	} {
		if bad.check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestLimitProps(t *testing.T) {
	props, err := limitProps(memlimit.Limits{
		MemoryMax: memlimit.Bytes(4 << 30), SwapMax: memlimit.Bytes(0), PidsMax: memlimit.Max(),
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{}
	for _, p := range props {
		if p.Value.Signature().String() != "t" {
			t.Errorf("%s is of type %s", p.Name, p.Value.Signature())
		}
		got[p.Name] = p.Value.Value()
	}
	if len(got) != 3 || got["MemoryMax"] != uint64(4<<30) || got["MemorySwapMax"] != uint64(0) || got["TasksMax"] != infinity {
		t.Errorf("%v", got)
	}
	if props, err := sliceLimits("a.slice", nil); err != nil || props != nil {
		t.Errorf("none: %v, %v", props, err)
	}
}

// The D-Bus types that systemd's own interface asks for.
func TestPropertyTypes(t *testing.T) {
	want := map[string]string{
		"Description": "s", "Slice": "s", "Delegate": "b", "CollectMode": "s", "KillMode": "s", "SendSIGHUP": "b",
		"TimeoutStopUSec": "t", "MemoryAccounting": "b", "TasksAccounting": "b", "TasksMax": "t", "Type": "s",
		"NotifyAccess": "s", "ExitType": "s", "OOMPolicy": "s", "Restart": "s", "WorkingDirectory": "s",
		"Environment": "as", "ExecStart": "a(sasb)", "PIDs": "au",
	}
	s := plainSpec()
	for _, p := range append(s.serviceProps(), s.scopeProps(5)...) {
		if got := p.Value.Signature().String(); want[p.Name] != got {
			t.Errorf("%s is of type %s, want %q", p.Name, got, want[p.Name])
		}
	}
	for _, p := range sliceProps("x", nil) {
		if slices.Contains([]string{"Delegate", "Slice", "TimeoutStopUSec"}, p.Name) {
			t.Errorf("%s is refused on slices", p.Name)
		}
	}
}

func TestRefusalNamesTheProperty(t *testing.T) {
	s := plainSpec()
	for text, want := range map[string]string{
		"Cannot set property ExitType, or unknown property.": "ExitType",
		"Value specified in TasksMax is out of range":        "TasksMax",
		"Invalid TasksMaxScale":                              "",
		"something else":                                     "",
	} {
		err := refusal("a.service", s.serviceProps(), dbus.Error{Name: "org.freedesktop.DBus.Error.InvalidArgs", Body: []any{text}})
		refused := (*PropertyError)(nil)
		if !errors.As(err, &refused) || refused.Name != want || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
	other := errors.New("other")
	if err := refusal("a.service", s.serviceProps(), other); !errors.Is(err, other) {
		t.Error(err)
	}
	if !unknownProperty(refusal("a", s.serviceProps(), dbus.Error{Name: "org.freedesktop.DBus.Error.PropertyReadOnly",
		Body: []any{"Cannot set property ExitType, or unknown property."}})) {
		t.Error("unknown property is not recognised")
	}
}
