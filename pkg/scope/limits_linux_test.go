package scope

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sessionbox/sessionbox/pkg/cgroup"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

func limits(t *testing.T, l memlimit.Limits) *specs.LinuxResources {
	t.Helper()
	r, err := l.OCI()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// checkCeilings checks that what is said to be in force is, and that everything
// is where its controller is.
func checkCeilings(t *testing.T, b *Box, got []memlimit.Ceiling, n int) {
	t.Helper()
	have, err := b.Top.Controllers()
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, c := range got {
		if !c.Want.IsSet() {
			continue
		}
		asked++
		controller, _, _ := strings.Cut(c.File, ".")
		if want := slices.Contains(have, controller); c.InForce != want {
			t.Errorf("%+v; controllers %v", c, have)
		}
	}
	if asked != n {
		t.Errorf("%d ceilings of %d are told: %+v", asked, n, got)
	}
	t.Logf("controllers %v, ceilings %+v", have, got)
}

func TestLimits(t *testing.T) {
	m := manager(t)
	s := spec()
	s.Limits = limits(t, memlimit.Limits{
		MemoryMax: memlimit.Bytes(256 << 20), SwapMax: memlimit.Bytes(0), PidsMax: memlimit.Bytes(100),
	})
	b := create(t, m, s)
	v, err := m.property(t.Context(), b.Unit, "Slice", "MemoryMax")
	if err != nil || v != uint64(256<<20) {
		t.Fatalf("MemoryMax is %v, %v", v, err)
	}
	want, _ := memlimit.FromOCI(s.Limits)
	got, err := b.Top.Ceilings(want)
	if err != nil {
		t.Fatal(err)
	}
	checkCeilings(t, b, got, 3)
	start(t, b, "task-1")
	for _, mib := range []uint64{300, 200, 500} {
		got, err = b.SetLimits(t.Context(), limits(t, memlimit.Limits{
			MemoryMax: memlimit.Bytes(mib << 20), PidsMax: memlimit.Bytes(mib),
		}))
		if err != nil {
			t.Fatal(err)
		}
		checkCeilings(t, b, got, 2)
	}
	// The leaves have the controllers of the unit.
	for _, c := range []string{"memory", "pids"} {
		have, _ := b.WorkDir().Controllers()
		if slices.Contains(have, c) {
			leaf, err := b.WorkDir().Child("task-1")
			if err != nil {
				t.Fatal(err)
			}
			if l, _ := leaf.Controllers(); !slices.Contains(l, c) {
				t.Errorf("the leaf has %v", l)
			}
			leaf.Close()
		}
	}
	kill(t, b, "")
	remove(t, m, b)
}

func TestLimitsOfAUnitThatIsGone(t *testing.T) {
	m := manager(t)
	b := create(t, m, spec())
	if err := m.stop(t.Context(), b.Unit); err != nil {
		t.Fatal(err)
	}
	_, err := b.SetLimits(t.Context(), limits(t, memlimit.Limits{PidsMax: memlimit.Bytes(5)}))
	if err == nil {
		t.Error("no error")
	}
	nothingLeft(t, m, b.spec)
}

func TestRefusedProperty(t *testing.T) {
	m := manager(t)
	b := create(t, m, spec())
	err := m.setProperties(t.Context(), b.Unit, append(sliceProps("", nil)[2:], prop("TasksMax", uint64(0))))
	refused := (*PropertyError)(nil)
	if !errors.As(err, &refused) || refused.Name != "TasksMax" || refused.Value != uint64(0) {
		t.Fatalf("%v", err)
	}
	t.Log(err)
	err = m.start(t.Context(), spec().SliceUnit(), append(sliceProps("x", nil), prop("NoSuchThing", true)))
	if !unknownProperty(err) || !errors.As(err, &refused) || refused.Name != "NoSuchThing" {
		t.Fatalf("%v", err)
	}
	t.Log(err)
}

func TestAggregate(t *testing.T) {
	m := manager(t)
	read := func() (uint64, uint64) {
		v, err := m.property(t.Context(), cgroup.Base, "Slice", "TasksMax")
		if err != nil {
			t.Fatal(err)
		}
		w, err := m.property(t.Context(), cgroup.Base, "Slice", "MemoryMax")
		if err != nil {
			t.Fatal(err)
		}
		return v.(uint64), w.(uint64)
	}
	for _, n := range []uint64{4000, 4000, 5000} {
		s := spec()
		s.Aggregate = limits(t, memlimit.Limits{PidsMax: memlimit.Bytes(n), MemoryMax: memlimit.Bytes(n << 20)})
		b := create(t, m, s)
		if v, w := read(); v != n || w != n<<20 {
			t.Errorf("TasksMax %d, MemoryMax %d, want %d", v, w, n)
		}
		remove(t, m, b)
	}
	b := create(t, m, spec())
	if v, _ := read(); v != 5000 {
		t.Errorf("left alone, TasksMax is %d", v)
	}
	remove(t, m, b)
	if err := m.setBase(context.Background(), limits(t, memlimit.Limits{PidsMax: memlimit.Max(), MemoryMax: memlimit.Max()})); err != nil {
		t.Fatal(err)
	}
	if v, w := read(); v != infinity || w != infinity {
		t.Errorf("lifted, TasksMax is %d, MemoryMax %d", v, w)
	}
}
