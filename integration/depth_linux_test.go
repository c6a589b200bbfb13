package integration_test

import "testing"

// TestThreeDeep: a session in a session in a session, each with a process that left
// its group and session. Closing the middle one ends it and the inner one, never the
// outer; closing the outer ends all.
func TestThreeDeep(t *testing.T) {
	r := newRig(t)
	c := r.canary()
	outer, middle, inner := r.payloads("outer"), r.payloads("middle"), r.payloads("inner")
	a := r.open("deep-a")
	r.exec(a, outer.argv("E05")...).must(t, 0, "exec in the outer one")
	open := func(within, name string) string {
		id := r.exec(within, bin(), "open", "--name", name).must(t, 0, "open "+name+" inside").text()
		if i, _ := r.listed(id); i.Parent != within || i.Box.Kind != r.box {
			t.Fatalf("%s is a %s box with parent %q, want a %s box with parent %s", name, i.Box.Kind, i.Parent, r.box, within)
		}
		return id
	}
	nest := func() (b, d string) {
		b = open(a, "deep-b")
		r.exec(b, middle.argv("E05")...).must(t, 0, "exec in the middle one")
		d = open(b, "deep-c")
		r.exec(d, inner.argv("E05")...).must(t, 0, "exec in the inner one")
		outer.await(1)
		middle.await(1)
		inner.await(1)
		return b, d
	}

	b, d := nest()
	receipt := r.closed(b, graceFlags()...)
	if len(receipt.Nested) != 1 || receipt.Nested[0].ID != d {
		t.Errorf("the receipt of the middle one holds %+v, want that of the inner one", receipt.Nested)
	}
	middle.stopped()
	inner.stopped()
	outer.ticking()
	if i := r.inspect(a); i.State != "open" || i.Leftovers != 1 {
		t.Errorf("the outer one is %s with %d leftovers, want open with 1", i.State, i.Leftovers)
	}

	nest()
	r.closed(a, graceFlags()...)
	outer.stopped()
	middle.stopped()
	inner.stopped()
	c.lives()
	r.nothing("afterwards")
}

// TestNoParent: a session may be opened from inside another and stay when that is
// closed.
func TestNoParent(t *testing.T) {
	r := newRig(t)
	p := r.payloads("payload")
	a := r.open("around")
	b := r.exec(a, bin(), "open", "--name", "apart", "--no-parent", "--backend", r.box).must(t, 0, "open --no-parent").text()
	r.detach(b, p.argv("payload")...)
	p.await(1)
	r.closed(a, graceFlags()...)
	p.ticking()
	if i, _ := r.listed(b); i.Parent != "" {
		t.Errorf("its parent is %q, want none", i.Parent)
	}
	r.closed(b, graceFlags()...)
	p.stopped()
}
