package darwinjob

// Part is what the ledger knows of one leaf, as a ledger of its own: for a session that is
// to have it from now on, under another name.
func (l *Ledger) Part(leaf, session, as string) *Ledger {
	p := l.Clone()
	p.Nodes, p.Reapers, p.Away = nil, nil, nil
	if p.Mode == Job { // it stays in the coalition, which remains the other session's
		p.Mode, p.Coalitions = Direct, append(p.Coalitions, p.Coalition)
		p.Coalition, p.Stub = 0, ID{}
	}
	for _, n := range l.Nodes {
		if n.Leaf == leaf {
			c := *n
			p.Nodes = append(p.Nodes, &c)
		}
	}
	for _, r := range l.Reapers {
		if r.Leaf == leaf {
			p.Reapers = append(p.Reapers, r)
		}
	}
	for _, numbers := range []map[int]Number{p.Sessions, p.Groups} {
		for n, is := range numbers {
			if is.Leaf != leaf {
				delete(numbers, n)
			}
		}
	}
	p.Rename(session, leaf, as)
	return p
}

// Rename gives a leaf, and the ledger, another name.
func (l *Ledger) Rename(session, leaf, as string) {
	l.Session = session
	for _, n := range l.Nodes {
		if n.Leaf == leaf {
			n.Leaf = as
		}
	}
	for i := range l.Reapers {
		if l.Reapers[i].Leaf == leaf {
			l.Reapers[i].Leaf = as
		}
	}
	for _, numbers := range []map[int]Number{l.Sessions, l.Groups} {
		for n, is := range numbers {
			if is.Leaf == leaf {
				is.Leaf = as
				numbers[n] = is
			}
		}
	}
}

// Rename is [Ledger.Rename] of the lineage's ledger.
func (j *Lineage) Rename(session, leaf, as string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.l.Rename(session, leaf, as)
}

// Merge is [Ledger.Merge] into the lineage's ledger.
func (j *Lineage) Merge(o *Ledger) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.l.Merge(o)
}

// Ledger is a copy of what is known now.
func (j *Lineage) Ledger() *Ledger {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.l.Clone()
	return c
}

// Include is [Ledger.Merge] of a session inside this one: its leaves get other names here, and
// what it knows of a process counts for more.
func (l *Ledger) Include(o *Ledger, name func(leaf string) string) error {
	c := o.Clone()
	c.Away, c.Mode = nil, Direct // whose coalition it is in is ours to know
	for _, n := range c.Nodes {
		n.Leaf = name(n.Leaf)
	}
	for i := range c.Reapers {
		c.Reapers[i].Leaf = name(c.Reapers[i].Leaf)
	}
	for _, numbers := range []map[int]Number{c.Sessions, c.Groups} {
		for n, is := range numbers {
			is.Leaf = name(is.Leaf)
			numbers[n] = is
		}
	}
	if err := l.Merge(c); err != nil {
		return err
	}
	for _, n := range c.Nodes {
		l.node(n.ID).Leaf = n.Leaf
	}
	return nil
}
