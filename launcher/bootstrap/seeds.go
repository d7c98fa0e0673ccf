package bootstrap

import (
	"context"
	"sync"
	"time"
)

// Seed is the address at which a host serves its plx binary to other hosts.
type Seed struct {
	Host, Port string
	// Token is the password that a downloading host must send. It does not
	// protect the binary, which is not secret. The downloading host verifies
	// the binary's checksum.
	Token string
}

// Hosts that have plx serve it to other hosts. So this machine sends the
// binary a few times, and not once for each host.
//
// TODO: measure directSends and fanOut with many hosts on a real network. No
// measurement of them is recorded.
const (
	directSends = 2 // number of hosts to which this machine sends plx itself; after that, a host waits for another host that can serve it
	fanOut      = 2 // maximum number of hosts that download from one host at the same time
	// If no transfer to any host makes progress for stallTimeout, a host stops
	// waiting for other hosts and gets plx from this machine.
	stallTimeout = 10 * time.Second
	// seedTime is the timeout for a host to start serving plx.
	seedTime = 5 * time.Second
)

// Seeds decides from which machine each host gets plx. If hosts share a file
// system, only one of them gets it. The first two hosts get plx from this
// machine, the others from hosts that have it.
type Seeds struct {
	lost func(why string) // called with the reason when direct becomes true; may be nil

	mu      sync.Mutex
	homes   map[string]*home // file systems with home directories, by name
	plx     map[string]*plx  // state of each plx binary, by its SHA-256
	changed chan struct{}    // closed and replaced when one of the fields that mu guards changes
	moved   time.Time        // time of the last progress of any transfer
	direct  bool             // true after a host could not reach another host; this machine then sends plx to all hosts
}

// home is a file system with home directories, which several hosts may share.
type home struct {
	getting chan struct{} // semaphore: holds one element while one of the hosts gets plx
	filled  bool          // true if the file system contains plx
}

// plx is the state of distributing one plx binary. Hosts of different
// platforms need different binaries.
type plx struct {
	sources []*source
	coming  int // number of hosts that are receiving the binary
	given   int // number of hosts to which this machine has sent the binary, or is sending it
}

// source is a host that can serve a plx binary to other hosts.
type source struct {
	open   func() (Seed, error) // starts serving at the first call; returns the address
	taking int                  // number of hosts that are downloading from this source
}

// turn is the state of one host while it receives the plx binary.
type turn struct {
	home *home   // file system to which the host writes plx; nil if another host has written it
	gets *plx    // binary that the host is receiving; nil before the transfer
	from *source // host from which this host downloads; nil for this machine
}

// NewSeeds returns an empty Seeds. The function lost is called once if hosts
// cannot download plx from each other, so that this machine must send it; lost
// may be nil.
func NewSeeds(lost func(why string)) *Seeds {
	return &Seeds{lost: lost, homes: map[string]*home{}, plx: map[string]*plx{}, changed: make(chan struct{}), moved: time.Now()}
}

// change calls the function by with s.mu locked, and wakes all waiting hosts.
func (s *Seeds) change(by func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	by()
	s.moved = time.Now()
	close(s.changed)
	s.changed = make(chan struct{})
}

// progress records that a transfer has made progress.
func (s *Seeds) progress() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = time.Now()
}

// enter waits until no other host with the same file system is getting plx.
// shared is true if another host has already written plx to that file system.
// t is the state of this host while it gets plx.
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
		<-h.getting // release the semaphore: all hosts that share the file system may now look for plx at the same time
		return &turn{}, true, nil
	}
	return &turn{home: h}, false, nil
}

// binary returns the plx binary with the given SHA-256. The caller must hold s.mu.
func (s *Seeds) binary(sum string) *plx {
	if s.plx[sum] == nil {
		s.plx[sum] = &plx{}
	}
	return s.plx[sum]
}

// choose returns the host from which the host of turn t downloads plx, or nil
// if this machine must send plx. It may wait until another host can serve. If
// able is false, the host lacks the tools for a download, and choose returns
// nil at once.
func (s *Seeds) choose(ctx context.Context, t *turn, sum string, able bool) *source {
	for {
		s.mu.Lock()
		p := s.binary(sum)
		from, wait := s.free(p)
		late := stallTimeout - time.Since(s.moved)
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

// free returns a host that can serve the binary p to one more host. If no host
// can serve now, wait is true if the caller should wait for one. The caller
// must hold s.mu.
func (s *Seeds) free(p *plx) (from *source, wait bool) {
	if s.direct || p.given < directSends {
		return nil, false
	}
	for _, one := range p.sources {
		if one.taking < fanOut && (from == nil || one.taking < from.taking) {
			from = one
		}
	}
	return from, from == nil && p.coming > 0
}

// miss records that the host of turn t could not download plx from another
// host. From then on this machine sends plx to all hosts, because other
// downloads would probably fail too.
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

// leave ends the turn t of a host, in which the host got plx; t is nil if the
// host already had plx. The function seed makes the host serve plx to other
// hosts; if it is nil, the host serves none.
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
		p := s.binary(sum)
		p.sources = append(p.sources, &source{open: sync.OnceValues(func() (Seed, error) {
			ctx, cancel := context.WithTimeout(context.Background(), seedTime)
			defer cancel()
			return seed(ctx)
		})})
	})
}
