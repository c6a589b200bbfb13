package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Resolve finds the session that ref means: an id, a name, or a unique prefix of
// either, in this order. A full id costs one stat and a full name one readlink
// more, however many sessions there are; anything else reads the records. Among
// several that fit, those not closed win. Errors: ErrNotFound, *AmbiguousError.
//
// A session whose record is bad is still found, by its id and its name. What was kept
// of a session (NAME.kept-N) is not found by a prefix of that one's name: who ends that
// one twice does not mean it.
func (s *Store) Resolve(ref string) (string, error) {
	id, err := s.ResolveExact(ref)
	if !errors.Is(err, ErrNotFound) || !ValidName(ref) {
		return id, err
	}
	return s.search(ref, func(c candidate) bool {
		return strings.HasPrefix(c.ID, ref) || PrefixOfName(ref, c.Name)
	})
}

// ResolveExact is Resolve without prefixes.
func (s *Store) ResolveExact(ref string) (string, error) {
	if !ValidName(ref) {
		return "", fmt.Errorf("session %q: %w", ref, ErrNotFound)
	}
	// Ids come first: a session could be named like another one's id.
	if ValidID(ref) && s.checkSession(ref) == nil {
		return ref, nil
	}
	if id, err := os.Readlink(filepath.Join(s.namesDir(), ref)); err == nil && s.checkSession(id) == nil {
		return id, nil
	}
	return s.search(ref, func(c candidate) bool { return c.Name == ref })
}

// PrefixOfName says whether ref, a prefix of the name, is enough of it to mean it.
func PrefixOfName(ref, name string) bool {
	rest, ok := strings.CutPrefix(name, ref)
	return ok && !strings.Contains(rest, KeptMark)
}

// KeptMark is between the name of a session and the number of what was kept of it.
const KeptMark = ".kept-"

// search reads the records for the one session that fits.
func (s *Store) search(ref string, fits func(candidate) bool) (string, error) {
	all, err := s.candidates()
	if err != nil {
		return "", fmt.Errorf("session %q: %w", ref, err)
	}
	found := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return !fits(c) })
	if open := slices.DeleteFunc(slices.Clone(found), func(c candidate) bool { return c.closed }); len(open) > 0 {
		found = open
	}
	switch len(found) {
	case 0:
	case 1:
		return found[0].ID, nil
	default:
		amb := &AmbiguousError{Ref: ref}
		for _, c := range found {
			amb.Matches = append(amb.Matches, c.Match)
		}
		return "", amb
	}
	return "", fmt.Errorf("session %q: %w", ref, ErrNotFound)
}

type candidate struct {
	Match
	closed bool
}

// candidates are all sessions by id; a bad record's name is what points to it.
func (s *Store) candidates() ([]candidate, error) {
	good, bad, err := s.Sessions()
	if err != nil {
		return nil, err
	}
	all := make([]candidate, 0, len(good)+len(bad))
	for _, rec := range good {
		all = append(all, candidate{Match{rec.ID, rec.Name}, rec.State == StateClosed})
	}
	if len(bad) > 0 {
		names, err := s.names()
		if err != nil {
			return nil, err
		}
		byID := make(map[string]string, len(names))
		for name, id := range names {
			byID[id] = name
		}
		for _, b := range bad {
			all = append(all, candidate{Match{b.ID, byID[b.ID]}, false})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

// names reads the claims: name to id.
func (s *Store) names() (map[string]string, error) {
	entries, err := os.ReadDir(s.namesDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names := make(map[string]string, len(entries))
	for _, e := range entries {
		if id, err := os.Readlink(filepath.Join(s.namesDir(), e.Name())); err == nil && ValidID(id) {
			names[e.Name()] = id
		}
	}
	return names, nil
}

// findName finds a session that is not closed and has the name, by its record;
// "" if there is none.
func (s *Store) findName(name string) (string, error) {
	good, _, err := s.Sessions()
	if err != nil {
		return "", err
	}
	for _, rec := range good {
		if rec.Name == name && rec.State != StateClosed {
			return rec.ID, nil
		}
	}
	return "", nil
}
