package hosts_test

import "testing"

func TestParseInner(t *testing.T) {
	const output = `=== RUN   TestA
=== RUN   TestA/one
    a_test.go:1: hello
=== RUN   TestA/two/with_slash
--- FAIL: TestA (0.10s)
    --- PASS: TestA/one (0.00s)
    --- FAIL: TestA/two/with_slash (0.00s)
        a_test.go:9: bad
=== RUN   TestB
    b_test.go:2: no memory controller
--- SKIP: TestB (0.00s)
=== RUN   TestC
panic: boom
`
	tests := parseInner(output)
	if len(tests) != 3 {
		t.Fatalf("%d tests, want 3", len(tests))
	}
	a, b, c := tests[0], tests[1], tests[2]
	if a.name != "TestA" || a.verdict != "FAIL" || len(a.subs) < 2 || a.subs[0].verdict != "PASS" {
		t.Errorf("TestA = %+v", a)
	}
	if last := a.subs[len(a.subs)-1]; last.verdict != "FAIL" || len(last.output) != 1 {
		t.Errorf("the failed subtest = %+v", last)
	}
	if b.verdict != "SKIP" || len(b.output) != 1 {
		t.Errorf("TestB = %+v", b)
	}
	if c.verdict != "" || !anyFailed(tests[2:]) || anyFailed(tests[1:2]) {
		t.Errorf("TestC = %+v, whose panic must count as a failure", c)
	}
}
