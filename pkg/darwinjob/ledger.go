package darwinjob

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// LedgerSchema is the version of the form of a [Ledger].
const LedgerSchema = 1

// Errors of this package, beside those of a [Table]; test with errors.Is.
var (
	// ErrOtherBoot: the ledger is of another boot, so all of it has ended.
	ErrOtherBoot = errors.New("recorded in another boot")
	// ErrElsewhere: its pids are of a namespace that we are not in.
	ErrElsewhere = errors.New("recorded in another pid namespace")
)

// Mode is what the kernel keeps of a session.
type Mode string

// The modes of a session. In Job mode it is one launchd job with a resource coalition of
// its own, which nothing forked below it can leave.
const (
	Direct Mode = "direct"
	Job    Mode = "job"
)

// Ledger is what is known of a session's processes: who started it, and every
// descendant that was seen while its ancestry could be seen. It is data: written out
// and read back it goes on, in another process, after a crash.
type Ledger struct {
	Schema    int    `json:"schema"`
	Session   string `json:"session"`
	Boot      string `json:"boot"`
	Namespace uint64 `json:"namespace,omitempty"`
	Mode      Mode   `json:"mode"`
	// Within are the sessions that this one is nested in: what is ours is theirs, too.
	Within []string `json:"within,omitempty"`

	// Marks that were put into its processes, see [Marks]; they are believed of
	// processes of UID only.
	UID      int    `json:"uid"`
	Cookie   string `json:"cookie,omitempty"`
	Sentinel uint64 `json:"sentinel,omitempty"`
	TTY      uint64 `json:"tty,omitempty"`
	Dir      string `json:"dir,omitempty"`

	// Coalition is the session's own one, in Job mode; Stub our process in it, which is
	// ended last. Coalitions are those that members were seen in.
	Coalition  uint64   `json:"coalition,omitempty"`
	Stub       ID       `json:"stub,omitzero"`
	Coalitions []uint64 `json:"coalitions,omitempty"`

	// Since is the first root: nothing older is of the session.
	Since ID `json:"since,omitzero"`
	// Reapers are not members; all their children are. On Linux that is a supervisor
	// that made itself subreaper and starts nothing else in sessions of its own making.
	Reapers []Reaper `json:"reapers,omitempty"`
	Nodes   []*Node  `json:"nodes"`
	// Away are processes that were given to another session: neither they nor what they
	// start from then on are members any more, whatever speaks for them.
	Away []ID `json:"away,omitempty"`
	// Sessions and Groups are the numbers that members were seen in.
	Sessions map[int]Number `json:"sessions,omitempty"`
	Groups   map[int]Number `json:"groups,omitempty"`

	// LastForks and LastEnded are of the last reading: they tell how many forks there
	// had been, at least, when a process started after it.
	LastForks uint64 `json:"last_forks,omitempty"`
	LastEnded uint64 `json:"last_ended,omitempty"`
	// Strangers are others in those coalitions by unique id, as they first were.
	Strangers map[uint64]Kin `json:"strangers,omitempty"`

	idx *index
}

// Node is one process that is or was a member.
type Node struct {
	ID
	Leaf  string `json:"leaf,omitempty"`  // of the root it descends from
	Depth int    `json:"depth,omitempty"` // links to that root, as far as known
	Root  bool   `json:"root,omitempty"`
	// Sealed: every session number on its way from the root was made below the root.
	Sealed   bool       `json:"sealed,omitempty"`
	Score    int        `json:"score"`
	Evidence []Evidence `json:"evidence,omitempty"` // why it was taken in
	Versions []int32    `json:"versions,omitempty"` // all that were seen of it
	Comm     string     `json:"comm,omitempty"`
	UID      int        `json:"uid"`
	// Absent is in how many readings since it last was there it was missing.
	Absent int `json:"absent,omitempty"`
}

// Reaper is a process of ours to which orphans of the session are given.
type Reaper struct {
	ID
	Leaf string `json:"leaf,omitempty"` // whose orphans they are, "" if that is not known
}

// Number is a session or group number that is the session's.
type Number struct {
	Leaf  string `json:"leaf,omitempty"`
	Depth int    `json:"depth,omitempty"`
	// Forks is a lower bound of the system's forks when its leader got the number, 0
	// if it is not known: until Forks + [Caps.Wrap] it cannot be another's.
	Forks uint64 `json:"forks,omitempty"`
}

// NewLedger is an empty one for a session of the boot that the snapshot is of.
func NewLedger(session string, s *Snapshot) *Ledger {
	return &Ledger{Schema: LedgerSchema, Session: session, Boot: s.Boot, Namespace: s.Namespace, Mode: Direct,
		UID: s.Caps.UID, Nodes: []*Node{}, Sessions: map[int]Number{}, Groups: map[int]Number{}, LastForks: s.Forks, LastEnded: s.Ended}
}

// AddRoot takes a process in, with all that it will start. It is to be called, and
// written down, before the first instruction of the process that may fork.
//
// One that leads a session of its own (setsid) seals it: every session number below it
// is then ours. One that does not, as when a running process is adopted, leaves only its
// ancestry as evidence.
func (l *Ledger) AddRoot(p Proc, leaf string) {
	if l.Since == (ID{}) || p.before(l.Since) {
		l.Since = p.ID
	}
	n := l.node(p.ID)
	if n == nil {
		n = &Node{ID: p.ID}
		l.add(n)
	}
	n.Leaf, n.Depth, n.Root, n.Sealed = leaf, 0, true, p.SID == p.PID
	n.Score, n.Evidence, n.Comm, n.UID = hardScore, []Evidence{ByIdentity}, p.Comm, p.UID
	l.versions(n, p.Version)
	if n.Sealed {
		l.Sessions[p.SID] = Number{Leaf: leaf, Forks: l.forksAt(p.ID)}
	}
	if p.Coalition != 0 && l.Mode == Direct && !slices.Contains(l.Coalitions, p.Coalition) {
		l.Coalitions = append(l.Coalitions, p.Coalition)
	}
}

// forksAt is a lower bound of the system's forks when a process started, 0 if nothing
// is known.
func (l *Ledger) forksAt(id ID) uint64 {
	switch {
	case id.Unique != 0:
		return id.Unique // it is that count
	case id.Start >= l.LastEnded:
		// Perhaps earlier in the same tick of 10 ms: what is forked in that is far from the
		// half round that Caps.Wrap leaves out.
		return l.LastForks
	}
	return 0
}

// Roots are the processes that were added as such.
func (l *Ledger) Roots() []*Node {
	var roots []*Node
	for _, n := range l.Nodes {
		if n.Root {
			roots = append(roots, n)
		}
	}
	return roots
}

// Merge adds what another ledger of the same session knows: several processes may keep
// one each.
func (l *Ledger) Merge(o *Ledger) error {
	if o.Boot != l.Boot {
		return fmt.Errorf("merge the ledger of %s: %w", o.Session, ErrOtherBoot)
	}
	if o.Namespace != l.Namespace {
		return fmt.Errorf("merge the ledger of %s: %w", o.Session, ErrElsewhere)
	}
	for _, n := range o.Nodes {
		have := l.node(n.ID)
		if have == nil {
			c := *n
			c.Versions, c.Evidence = slices.Clone(n.Versions), slices.Clone(n.Evidence)
			l.add(&c)
			continue
		}
		if n.Root && !have.Root || n.Root == have.Root && n.Depth < have.Depth {
			have.Leaf = n.Leaf // whose keeper is nearer: a command of the session may have started another
		}
		have.Root, have.Sealed = have.Root || n.Root, have.Sealed || n.Sealed
		have.Score, have.Depth, have.Absent = max(have.Score, n.Score), min(have.Depth, n.Depth), min(have.Absent, n.Absent)
		for _, v := range n.Versions {
			l.versions(have, v)
		}
	}
	mergeNumbers(l.Sessions, o.Sessions)
	mergeNumbers(l.Groups, o.Groups)
	if o.Since != (ID{}) && (l.Since == (ID{}) || o.Since.before(l.Since)) {
		l.Since = o.Since
	}
	for _, r := range o.Reapers {
		if !slices.ContainsFunc(l.Reapers, func(have Reaper) bool { return have.Same(r.ID) }) {
			l.Reapers = append(l.Reapers, r)
		}
	}
	for _, id := range o.Away {
		if !slices.ContainsFunc(l.Away, id.Same) {
			l.Away = append(l.Away, id)
		}
	}
	if l.Mode != Job && o.Mode == Job {
		l.Mode, l.Coalition, l.Stub = Job, o.Coalition, o.Stub
	}
	for _, c := range o.Coalitions {
		if !slices.Contains(l.Coalitions, c) {
			l.Coalitions = append(l.Coalitions, c)
		}
	}
	return nil
}

// mergeNumbers keeps the later holder of a number: of it more can be proven.
func mergeNumbers(into, from map[int]Number) {
	for n, is := range from {
		if have, ok := into[n]; !ok || have.Forks < is.Forks {
			into[n] = is
		}
	}
}

// Clone is one that can be judged by without this one being changed.
func (l *Ledger) Clone() *Ledger {
	c := *l
	c.Nodes = make([]*Node, len(l.Nodes))
	for i, n := range l.Nodes {
		m := *n
		c.Nodes[i] = &m
	}
	c.Sessions, c.Groups, c.Coalitions = maps.Clone(l.Sessions), maps.Clone(l.Groups), slices.Clone(l.Coalitions)
	c.Strangers, c.Reapers, c.Away, c.Within, c.idx = maps.Clone(l.Strangers), slices.Clone(l.Reapers), slices.Clone(l.Away), slices.Clone(l.Within), nil
	return &c
}

// Encode is the ledger's form for a file.
func (l *Ledger) Encode() ([]byte, error) { return json.Marshal(l) }

// DecodeLedger reads what [Ledger.Encode] wrote, also of a later schema as far as it
// is understood: a close must work from any record.
func DecodeLedger(b []byte) (*Ledger, error) {
	l := &Ledger{}
	if err := json.Unmarshal(b, l); err != nil {
		return nil, fmt.Errorf("decode ledger: %w", err)
	}
	if l.Boot == "" {
		return nil, errors.New("decode ledger: it names no boot")
	}
	l.Nodes = slices.DeleteFunc(l.Nodes, func(n *Node) bool { return n == nil || n.PID <= 1 || !n.proven() })
	if l.Sessions == nil {
		l.Sessions = map[int]Number{}
	}
	if l.Groups == nil {
		l.Groups = map[int]Number{}
	}
	return l, nil
}

// index finds nodes by what other processes say of them.
type index struct {
	pid     map[int][]*Node
	unique  map[uint64]*Node
	version map[int32]*Node
}

func (l *Ledger) index() *index {
	if l.idx == nil {
		l.idx = &index{pid: map[int][]*Node{}, unique: map[uint64]*Node{}, version: map[int32]*Node{}}
		for _, n := range l.Nodes {
			l.enter(n)
		}
	}
	return l.idx
}

func (l *Ledger) enter(n *Node) {
	l.idx.pid[n.PID] = append(l.idx.pid[n.PID], n)
	if n.Unique != 0 {
		l.idx.unique[n.Unique] = n
	}
	for _, v := range n.Versions {
		l.idx.version[v] = n
	}
}

func (l *Ledger) add(n *Node) {
	l.index()
	l.Nodes = append(l.Nodes, n)
	l.enter(n)
}

// node finds the one of a process.
func (l *Ledger) node(id ID) *Node {
	for _, n := range l.index().pid[id.PID] {
		if n.Same(id) {
			return n
		}
	}
	return nil
}

func (l *Ledger) versions(n *Node, v int32) {
	if v != 0 && !slices.Contains(n.Versions, v) {
		n.Versions = append(n.Versions, v)
		l.index().version[v] = n
	}
}
