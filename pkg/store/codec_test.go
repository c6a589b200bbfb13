package store

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"pgregory.net/rapid"
)

func TestSessionRoundTrip(t *testing.T) {
	when := time.Date(2026, 8, 2, 1, 2, 3, 4, time.FixedZone("", 7200))
	rec := newSession("web")
	rec.State, rec.Closing, rec.Parent = StateClosing, &when, NewID()
	data := mustMarshal(t, rec)
	var got Session
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rec, got); diff != "" {
		t.Errorf("after a round trip (-want +got):\n%s", diff)
	}
	for _, want := range []string{`"grace_seconds":1.5`, `"closing":"2026-08-01T23:02:03.000000004Z"`, `{"schema":1,"id":"`} {
		if !bytes.Contains(data, []byte(want)) {
			t.Errorf("%s does not contain %s", data, want)
		}
	}
}

func TestTaskRoundTrip(t *testing.T) {
	exit, peak, when := 3, uint64(1<<33), time.Date(2026, 8, 2, 1, 2, 3, 0, time.UTC)
	rec := newTask()
	rec.Schema, rec.N, rec.PID, rec.Start, rec.Ended = 1, 7, 4712, math.MaxUint64, &when
	rec.State, rec.Exit, rec.PeakBytes, rec.Reason, rec.Leaf, rec.Detached = TaskFailed, &exit, &peak, "said so", "t7", true
	rec.OOM = &memlimit.Kill{Processes: 2, Limit: memlimit.Place{Kind: memlimit.KindSession, Name: "work", Session: "aaaaaaaaaa"}, Sure: true, Victims: []memlimit.Victim{{PID: 7, Comm: "hog"}}}
	rec.Mark = &memlimit.Mark{Kills: 1, OOMs: map[string]uint64{"/sys/fs/cgroup/a": 2}}
	var got Task
	if err := json.Unmarshal(mustMarshal(t, rec), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rec, got); diff != "" {
		t.Errorf("after a round trip (-want +got):\n%s", diff)
	}
}

// decodeAny reads JSON keeping numbers as they are written.
func decodeAny(t rapid.TB, data []byte) map[string]any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var m map[string]any
	if err := dec.Decode(&m); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return m
}

func TestUnknownFieldsSurvive(t *testing.T) {
	for name, extra := range map[string]string{
		"top":          `"future":{"a":[1,2,{"b":null}]}`,
		"other case":   `"NAME":"x","Id":"y","schemA":7`,
		"precision":    `"big":123456789012345678901234567890,"exp":1E+400`,
		"escapes":      `"a\"b\\c\u0001\ud83d\ude00":"\u2028<&>"`,
		"empty key":    `"":1`,
		"in an object": `"x":1,"creator":{"pid":4711,"start":12345,"boot":"b","uid":0,"PID":3}`,
		"in limits":    `"limits":{"memory":{"limit":7,"zram":true},"gpu":{"n":1}}`,
		"empty object": `"limits":{"gpu":1}`,
		"white space":  "\"x\" :\n[ 1 , {\"y\" : \"}\" } ]\t",
	} {
		t.Run(name, func(t *testing.T) {
			base := strings.TrimSuffix(string(mustMarshal(t, newSession("web"))), "}")
			data := []byte(base + "," + extra + "}")
			want := decodeAny(t, data)
			var rec Session
			if err := rec.UnmarshalJSON(data); err != nil {
				t.Fatal(err)
			}
			if err := rec.Check(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, decodeAny(t, mustMarshal(t, rec))); diff != "" {
				t.Errorf("after a rewrite (-want +got):\n%s", diff)
			}
		})
	}
}

func TestChangesWinOverUnknownFields(t *testing.T) {
	base := strings.TrimSuffix(string(mustMarshal(t, newSession("web"))), "}")
	var rec Session
	if err := rec.UnmarshalJSON([]byte(base + `,"creator":{"pid":5,"start":6,"tty":"pts/1"},"limits":{"gpu":1}}`)); err != nil {
		t.Fatal(err)
	}
	rec.Creator.PID, rec.Limits = 99, nil
	got := decodeAny(t, mustMarshal(t, rec))
	want := map[string]any{"pid": json.Number("99"), "start": json.Number("6"), "tty": "pts/1"}
	if diff := cmp.Diff(want, got["creator"]); diff != "" {
		t.Errorf("creator (-want +got):\n%s", diff)
	}
	if v, ok := got["limits"]; ok {
		t.Errorf("cleared limits came back: %v", v)
	}
}

func TestDecodeOddities(t *testing.T) {
	var rec Session
	in := `{"labels":{"a":"1"},"labels":{"b":"2"},"name":null,"x":1,"x":2,"creator":{"pid":1,"q":1},"creator":{"start":2}}`
	if err := rec.UnmarshalJSON([]byte(in)); err != nil {
		t.Fatal(err)
	}
	want := Session{Labels: map[string]string{"b": "2"}, Creator: ProcID{Start: 2}, Extra: rawFields{"x": json.RawMessage("2")}}
	if diff := cmp.Diff(want, rec); diff != "" {
		t.Errorf("the last of two keys counts (-want +got):\n%s", diff)
	}
	for in, want := range map[string]string{
		``:                                   "unexpected end",
		`null`:                               "null where an object is wanted",
		`[1]`:                                "an array where an object is wanted",
		`{"schema":1`:                        "unexpected end",
		`{"schema":1}{}`:                     "after top-level value",
		`{"schema":"1"}`:                     "schema: ",
		`{"creator":{"pid":"1"}}`:            "creator: pid: ",
		`{"creator":[]}`:                     "creator: an array where",
		`{"limits":{"memory":{"limit":""}}}`: "limits: memory: limit: ",
		`{"grace_seconds":1e300}`:            "grace_seconds: too many",
		`{"uid":1e3}`:                        "uid: ",
		`{"inode":-1}`:                       "inode: ",
		`{"created":"yesterday"}`:            "created: ",
	} {
		if err := rec.UnmarshalJSON([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("decode %s: %v, want %q", in, err, want)
		}
	}
}

// anyJSON draws a JSON value.
func anyJSON(depth int) *rapid.Generator[any] {
	leaves := []*rapid.Generator[any]{
		rapid.String().AsAny(), rapid.Int64().AsAny(), rapid.Float64Range(-1e300, 1e300).AsAny(),
		rapid.Bool().AsAny(), rapid.Just[any](nil),
	}
	if depth > 0 {
		leaves = append(leaves,
			rapid.SliceOfN(anyJSON(depth-1), 0, 3).AsAny(),
			rapid.MapOfN(rapid.String(), anyJSON(depth-1), 0, 3).AsAny())
	}
	return rapid.OneOf(leaves...)
}

func TestUnknownFieldsSurviveProperty(t *testing.T) {
	known := map[string]bool{}
	for _, f := range sessionLayout().fields {
		known[f.name] = true
	}
	unknown := rapid.MapOfN(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"Name", "SCHEMA", "iD", "creatoR"})), anyJSON(3), 0, 6)
	rapid.Check(t, func(t *rapid.T) {
		rec := newSession("web")
		rec.Limits = nil
		full := decodeAny(t, mustJSON(t, rec))
		for k, v := range unknown.Draw(t, "top") {
			if !known[k] {
				full[k] = v
			}
		}
		creator := full["creator"].(map[string]any)
		for k, v := range unknown.Draw(t, "creator") {
			if k != "pid" && k != "start" && k != "boot" {
				creator[k] = v
			}
		}
		data, err := json.Marshal(full)
		if err != nil {
			t.Skip("no JSON")
		}
		want := decodeAny(t, data)
		var got Session
		if err := got.UnmarshalJSON(data); err != nil {
			t.Fatal(err)
		}
		clear(data) // what was read must not lean on the reader's buffer
		if diff := cmp.Diff(want, decodeAny(t, mustJSON(t, got))); diff != "" {
			t.Fatalf("after a rewrite (-want +got):\n%s", diff)
		}
		keys := maps.Keys(got.Extra)
		for k := range keys {
			if known[k] && k != "creator" {
				t.Fatalf("known key %q among the unknown", k)
			}
		}
	})
}

func mustJSON(t rapid.TB, v json.Marshaler) []byte {
	data, err := v.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func FuzzSession(f *testing.F) {
	f.Add(mustMarshal(f, newSession("web")))
	f.Add([]byte(`{"schema":1,"id":"abcdefghij","state":"open","creator":{"q":[{}]},"limits":{"x":{"y":1}},"":"\u0000"}`))
	f.Add([]byte(`{"schema":2,"id":7}`))
	f.Add([]byte("{\"a\\\"\" : \"\xff\", \"name\": \"\xff\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var rec Session
		if err := rec.UnmarshalJSON(data); err != nil {
			return
		}
		first, err := rec.MarshalJSON()
		if err != nil {
			t.Fatalf("read but not written: %v", err)
		}
		var again Session
		if err := again.UnmarshalJSON(first); err != nil {
			t.Fatalf("written but not read: %v\n%s", err, first)
		}
		second, err := again.MarshalJSON()
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("not stable (%v):\n%s\n%s", err, first, second)
		}
		rec.Check()
	})
}

func FuzzTask(f *testing.F) {
	f.Add(mustMarshal(f, newTask()))
	f.Fuzz(func(t *testing.T, data []byte) {
		var rec Task
		if rec.UnmarshalJSON(data) == nil {
			if _, err := parseTaskRecord(mustMarshal(t, rec), 1); err == nil && rec.Check() != nil {
				t.Fatal("parsed what Check refuses")
			}
		}
	})
}

func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"schema":1,"time":"2026-08-01T00:00:00Z","event":"opened","detail":{"a":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if e, err := parseEvent(data); err == nil {
			if _, err := parseEvent(mustMarshal(t, e)); err != nil {
				t.Fatal(err)
			}
		}
	})
}
