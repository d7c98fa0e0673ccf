package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/hostfile"
)

// silent is a connection to a host of which nothing is wanted.
type silent struct{}

func (silent) Run(context.Context, string, io.Reader, io.Writer, io.Writer) error { return nil }
func (silent) Copy(context.Context, io.Reader, int64, string, fs.FileMode) error  { return nil }
func (silent) Close() error                                                       { return nil }

// Of 200 hosts that are wanted together as many as are allowed are dialled at
// once, and all are connected in the end.
func TestDialsAreBounded(t *testing.T) {
	const hosts = 200
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var now, connected atomic.Int64
		answer := make(chan struct{})
		dial := f.bounded(func(context.Context) (transport, error) {
			now.Add(1)
			defer now.Add(-1)
			<-answer
			return silent{}, nil
		})
		for i := range hosts {
			r := newRemote(hostfile.Host{Name: fmt.Sprint("h", i)}, dial, false)
			f.remotes = append(f.remotes, r)
			go func() {
				if conn, err := r.connect(t.Context()); conn == nil || err != nil {
					t.Error(err)
				}
				connected.Add(1)
			}()
		}
		for done := range hosts {
			synctest.Wait()
			if n := now.Load(); n != min(fanOut, hosts-int64(done)) || connected.Load() != int64(done) {
				t.Fatalf("%d hosts are dialled at once, %d connected, after %d answers", n, connected.Load(), done)
			}
			answer <- struct{}{}
		}
		synctest.Wait()
		for _, r := range f.remotes {
			if conn, err := r.present(); conn == nil || err != nil {
				t.Errorf("host %s: no connection, %v", r.host.Name, err)
			}
		}
	})
}

// Whatever the hosts are, they are dialled when it is their turn, and nobody
// waits for it longer than he wants to.
func TestEveryHostWaitsForItsTurn(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for name, reach := range map[string]Reach{
		"over SSH": {Hosts: []hostfile.Host{{Name: "h1"}, {Name: "localhost"}}},
		"embedded": {LocalHosts: 2, LocalWorkers: 1},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := openFleet(t.Context(), reach, newVoice(Terminal{Stderr: io.Discard}))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close() // nothing was dialled
			for range fanOut {
				f.turns <- struct{}{}
			}
			enough := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(enough)
			for _, r := range f.remotes {
				if _, err := r.dial(ctx); err != enough {
					t.Errorf("host %s: %v", r.host.Name, err)
				}
			}
		})
	}
}

// Nobody waits for his turn again: what a host may be away counts meanwhile.
func TestWhoWasThereIsDialledAtOnce(t *testing.T) {
	f, down := newFleet(), errors.New("down")
	results := []error{down, nil, down, nil}
	dial := f.bounded(func(context.Context) (transport, error) {
		err := results[0]
		results = results[1:]
		return nil, err
	})
	enough := errors.New("enough")
	over, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	all := func(take bool) {
		for range fanOut {
			if take {
				f.turns <- struct{}{}
			} else {
				<-f.turns
			}
		}
	}
	for i, c := range []struct {
		full bool
		want error
	}{{false, down}, {true, enough}, {false, nil}, {true, down}, {true, nil}} {
		ctx := t.Context()
		if c.full {
			all(true)
			ctx = over
		}
		if _, err := dial(ctx); err != c.want {
			t.Errorf("dial %d: %v, want %v", i, err, c.want)
		}
		if c.full {
			all(false)
		}
	}
}

// A host whose turn comes late has all its time to end the job, and of one that
// cannot be reached nothing is said but why.
func TestStopCountsFromTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		down := errors.New("host h1: down") // as a transport says it
		r := newRemote(hostfile.Host{Name: "h1"}, func(context.Context) (transport, error) {
			dials++
			time.Sleep(time.Hour) // the fake clock's
			return nil, down
		}, false)
		j := &job{record: record{Job: "j", Hosts: make([]hostRecord, 1)}, stations: []*station{{remote: r, job: "j"}}}
		err := j.stop(t.Context(), StopConfig{Grace: time.Second})
		if want := "host h1: stop job j: down"; !errors.Is(err, down) || err.Error() != want || dials != 1 {
			t.Errorf("%v after %d dials, want %s", err, dials, want)
		}
	})
}
