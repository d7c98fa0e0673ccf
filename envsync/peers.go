package envsync

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Offer is a blob that a host gives to other hosts, and where.
type Offer struct {
	Host, Port string
	// Token is what whoever asks must tell. The blob is no secret, and who takes it compares
	// its hash.
	Token string
	// Close ends it.
	Close func()
}

// Hosts that have the blob give it to others: all but the first ones get it from there, so this
// machine's link carries it a few times and not once for each host.
const (
	firsts = 2 // hosts that get it from this machine before any host waits for another one
	fan    = 2 // hosts that take it from one host at a time
	// quiet is after how long without progress anywhere a host waits no longer for others.
	quiet = 10 * time.Second
	// offerTime bounds the start of an offer.
	offerTime = 5 * time.Second
)

// peers are the hosts that have a blob.
type peers struct {
	blob Blob
	lost func(why string) // is told why direct is set; nil: nobody is

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when something below changes
	sources []*source
	coming  int       // hosts that are getting the blob and will give it to others
	given   int       // hosts that got it from this machine, or are getting it
	moved   time.Time // when a host was last known to get on
	direct  bool      // a host could not reach another one: all get it from this machine
}

// source is a host that has the blob.
type source struct {
	open   func() (Offer, error) // begins the offer at the first call
	opened bool                  // open was called
	taking int                   // hosts that take the blob from it
}

func newPeers(b Blob, lost func(string)) *peers {
	return &peers{blob: b, lost: lost, changed: make(chan struct{}), moved: time.Now()}
}

// change changes the peers, and has all that wait look again.
func (p *peers) change(by func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	by()
	p.moved = time.Now()
	close(p.changed)
	p.changed = make(chan struct{})
}

// progress notes that a host gets on.
func (p *peers) progress() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moved = time.Now()
}

// add notes that a host has the blob.
func (p *peers) add(t Target) {
	if t.Offer == nil {
		return
	}
	s := &source{open: sync.OnceValues(func() (Offer, error) {
		ctx, cancel := context.WithTimeout(context.Background(), offerTime)
		defer cancel()
		return t.Offer(ctx)
	})}
	p.change(func() { p.sources = append(p.sources, s) })
}

// choose returns from which host a target takes the blob; nil: it gets it from this machine.
// The caller ends with done.
func (p *peers) choose(ctx context.Context, t Target) *source {
	for {
		p.mu.Lock()
		from, wait := p.free()
		late := quiet - time.Since(p.moved)
		if !wait || late <= 0 || ctx.Err() != nil {
			if t.Offer != nil {
				p.coming++
			}
			if from != nil {
				from.taking++
			} else {
				p.given++
			}
			p.mu.Unlock()
			return from
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-time.After(late):
		case <-ctx.Done():
		}
	}
}

// free returns a host that can give the blob to one more, or whether to wait for one. It needs
// p.mu.
func (p *peers) free() (from *source, wait bool) {
	if p.direct || p.given < firsts {
		return nil, false
	}
	for _, s := range p.sources {
		if s.taking < fan && (from == nil || s.taking < from.taking) {
			from = s
		}
	}
	return from, from == nil && p.coming > 0
}

// done ends choose for a host: without an error it has the blob. from is nil if it got it from
// this machine.
func (p *peers) done(from *source, t Target, err error) {
	p.change(func() {
		if t.Offer != nil {
			p.coming--
		}
		if from != nil {
			from.taking--
		}
	})
	if err == nil {
		p.add(t)
	}
}

// miss notes that a host could not take the blob from another one, and returns that it gets it from
// this machine. Where one cannot reach another, further ones are not made to try.
func (p *peers) miss(from *source, err error) *source {
	first := false
	p.change(func() {
		from.taking--
		first = !p.direct && !errors.Is(err, errBare)
		p.direct = p.direct || first
	})
	if first && p.lost != nil {
		p.lost(err.Error())
	}
	return nil
}

// errBare is the error of a host without the programs to take a blob from another one.
var errBare = errors.New("it lacks bash or timeout")

var plainAddress = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9A-Za-z.:_-]+$`) })

// fetch has a host take the blob from another one.
func (p *peers) fetch(ctx context.Context, from *source, t Target) error {
	p.change(func() { from.opened = true })
	o, err := from.open()
	if err != nil {
		return err
	}
	if !plainAddress().MatchString(o.Host) || !plainAddress().MatchString(o.Port) {
		return fmt.Errorf("%q is no address for a script", o.Host)
	}
	limit := offerTime + time.Duration(p.blob.Size/slowest)*time.Second
	temporary := temporaryName(p.blob)
	var out, errs bounded
	call := fmt.Sprintf("fetch %s %s %d %s\n", o.Host, o.Port, int(limit.Seconds()), temporary)
	taking, cancel := context.WithTimeout(ctx, limit+offerTime)
	defer cancel()
	err = t.Host.Run(taking, onBlobs(call), strings.NewReader(o.Token), &out, &errs)
	if strings.TrimSpace(out.buf.String()) == "bare" {
		return errBare
	}
	if err == nil {
		err = settle(ctx, t.Host, p.blob, temporary)
	}
	if err != nil {
		tidy(ctx, t.Host, temporary)
		return fmt.Errorf("host %s took nothing from %s: %w: %s", t.Name, net.JoinHostPort(o.Host, o.Port), err, short(errs.buf.String()))
	}
	return nil
}

// close ends all offers.
func (p *peers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sources {
		if !s.opened {
			continue
		}
		if o, err := s.open(); err == nil {
			o.Close()
		}
	}
}
