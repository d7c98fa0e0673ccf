package bootstrap

import (
	"context"
	"sync"
	"time"
)

// Seed is where a host gives its plx to others.
type Seed struct {
	Host, Port string
	// Token is what whoever asks must tell. Plx is no secret, and who takes it compares its hash.
	Token string
}

// Hosts that have plx give it to others: all but the first ones get it from there, so this
// machine's link carries it a few times and not once for each host.
const (
	firsts = 2 // hosts that get it from this machine before any host waits for another one
	fan    = 2 // hosts that take it from one host at a time
	// quiet is after how long without progress anywhere a host waits no longer for others.
	quiet = 10 * time.Second
	// seedTime bounds how long a host takes to begin to give.
	seedTime = 5 * time.Second
)

// Seeds decide which host gets plx from where: the hosts of one file system once, the first two
// from this machine, and the others from those that have it.
type Seeds struct {
	lost func(why string) // is told why direct is set; nil: nobody is

	mu      sync.Mutex
	homes   map[string]*home // by file system
	plx     map[string]*plx  // by hash
	changed chan struct{}    // closed, and replaced, when something changes
	moved   time.Time        // when a host was last known to get on
	direct  bool             // a host could not reach another one: all get it from this machine
}

// home is a file system.
type home struct {
	getting chan struct{} // holds one element while one of its hosts gets plx
	filled  bool          // it has plx
}

// plx is one of the programs, as platforms have different ones.
type plx struct {
	sources []*source
	coming  int // hosts that are getting it
	given   int // hosts that got it from this machine, or are getting it
}

// source is a host that has plx.
type source struct {
	open   func() (Seed, error) // has it begin to give, at the first call
	taking int                  // hosts that take from it
}

// turn is the part of one host.
type turn struct {
	home *home   // that it fills; nil: another host has
	gets *plx    // nil: it gets none yet
	from *source // nil: this machine
}

// NewSeeds returns Seeds without a host. lost is told, once, if hosts cannot give plx to each
// other, so that this machine sends it; it may be nil.
func NewSeeds(lost func(why string)) *Seeds {
	return &Seeds{lost: lost, homes: map[string]*home{}, plx: map[string]*plx{}, changed: make(chan struct{}), moved: time.Now()}
}

// change changes s, and has all that wait look again.
func (s *Seeds) change(by func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	by()
	s.moved = time.Now()
	close(s.changed)
	s.changed = make(chan struct{})
}

// progress notes that a host gets on.
func (s *Seeds) progress() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = time.Now()
}

// enter waits until no other host with the same file system gets plx. shared reports that one has
// got it.
func (s *Seeds) enter(ctx context.Context, fileSystem string) (t *turn, shared bool, err error) {
	s.mu.Lock()
	h := s.homes[fileSystem]
	if h == nil {
		h = &home{getting: make(chan struct{}, 1)}
		s.homes[fileSystem] = h
	}
	s.mu.Unlock()
	select {
	case h.getting <- struct{}{}:
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.filled {
		<-h.getting // all that share it look at the same time
		return &turn{}, true, nil
	}
	return &turn{home: h}, false, nil
}

// of returns the program of a hash. It needs s.mu.
func (s *Seeds) of(sum string) *plx {
	if s.plx[sum] == nil {
		s.plx[sum] = &plx{}
	}
	return s.plx[sum]
}

// choose returns from which host the host of t takes plx; nil: it gets it from this machine. One
// that is not able to take it from another host does not wait for any.
func (s *Seeds) choose(ctx context.Context, t *turn, sum string, able bool) *source {
	for {
		s.mu.Lock()
		p := s.of(sum)
		from, wait := s.free(p)
		late := quiet - time.Since(s.moved)
		if !able || !wait || late <= 0 || ctx.Err() != nil {
			p.coming++
			s.moved = time.Now()
			if t.gets = p; from != nil && able {
				t.from = from
				from.taking++
			} else {
				p.given++
			}
			s.mu.Unlock()
			return t.from
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-time.After(late):
		case <-ctx.Done():
		}
	}
}

// free returns a host that can give plx to one more, or whether to wait for one. It needs s.mu.
func (s *Seeds) free(p *plx) (from *source, wait bool) {
	if s.direct || p.given < firsts {
		return nil, false
	}
	for _, one := range p.sources {
		if one.taking < fan && (from == nil || one.taking < from.taking) {
			from = one
		}
	}
	return from, from == nil && p.coming > 0
}

// miss notes that a host could not take plx from another one, and gets it from this machine. Where
// one cannot reach another, further ones are not made to try.
func (s *Seeds) miss(t *turn, err error) {
	first := false
	s.change(func() {
		t.from.taking--
		t.from = nil
		first, s.direct = !s.direct, true
	})
	if first && s.lost != nil {
		s.lost(err.Error())
	}
}

// leave ends the turn of a host. A host without a turn has had plx before. seed has it give plx to
// others; nil: it does not.
func (s *Seeds) leave(t *turn, sum string, seed func(context.Context) (Seed, error)) {
	s.change(func() {
		if t != nil && t.from != nil {
			t.from.taking--
		}
		if t != nil && t.gets != nil {
			t.gets.coming--
		}
		if t != nil && t.home != nil {
			t.home.filled = sum != ""
			<-t.home.getting
		}
		if seed == nil {
			return
		}
		p := s.of(sum)
		p.sources = append(p.sources, &source{open: sync.OnceValues(func() (Seed, error) {
			ctx, cancel := context.WithTimeout(context.Background(), seedTime)
			defer cancel()
			return seed(ctx)
		})})
	})
}
