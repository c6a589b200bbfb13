package session

import (
	"maps"
	"sync"
	"time"
)

// hungEngines are the engines that have hung a moment ago. They are left alone for a while, as a
// bus is: each would cost its time again, in the close of each session that called it.
type hungEngines struct {
	mu  sync.Mutex
	all map[string]hungEngine
}

// engineRest is how long.
const engineRest = 30 * time.Second

type hungEngine struct {
	at  time.Time
	err error
}

// add remembers one that has hung just now.
func (h *hungEngines) add(key string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[string]hungEngine{}
	}
	h.all[key] = hungEngine{time.Now(), err}
}

// recent gives those that are left alone still, by key.
func (h *hungEngines) recent() map[string]error {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.all, func(_ string, e hungEngine) bool { return time.Since(e.at) > engineRest })
	recent := map[string]error{}
	for key, e := range h.all {
		recent[key] = e.err
	}
	return recent
}
