package launcher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/plx-run/plx/launcher/agent"
	"github.com/plx-run/plx/launcher/coordinator"
)

// fetcher brings the checkpoints of a job from its hosts to a folder here.
type fetcher struct {
	stations []*station
	name     string // of the checkpoints
	dir      string
	voice    *voice
	meter    *meter

	mu    sync.Mutex
	taken map[string]bool // by name
	files int
	there int // of these, there already
	bytes int64
}

// atOnce is how many files are fetched at the same time.
const atOnce = 8

func (f *fetcher) report(fetched int) {
	already := ""
	if f.there > 0 {
		already = fmt.Sprintf(", %d of them there already", f.there)
	}
	f.voice.say("fetched %s of %s into %s: %s, %s%s", count(fetched, "checkpoint"), f.name, f.dir, count(f.files, "file"), size(f.bytes), already)
}

// list asks every host. Those out of reach are told of.
func (f *fetcher) list(ctx context.Context) (lists [][]agent.Kept, err error) {
	lists = make([][]agent.Kept, len(f.stations))
	errs := make([]error, len(f.stations))
	var wg sync.WaitGroup
	for i, s := range f.stations {
		wg.Go(func() {
			errs[i] = s.within(ctx, askTime, func(ctx context.Context) (err error) {
				lists[i], err = s.kept(ctx, f.name)
				return err
			})
			if errs[i] != nil {
				f.voice.say("%v", s.named(fmt.Errorf("its checkpoints are not fetched: %w", errs[i])))
			}
			for _, k := range lists[i] {
				if k.Damage != "" {
					f.voice.say("host %s: checkpoint %s: its manifest is unreadable: %s", s.host.Name, k.Folder, harmless(k.Damage))
				}
			}
		})
	}
	wg.Wait()
	return lists, errors.Join(errs...)
}

// announce tells the meter what is to come.
func (f *fetcher) announce(all []checkpoint) {
	for _, c := range all {
		for _, file := range c.files {
			if c.missing == "" {
				f.meter.moved("", path.Join(c.folder, file.Name), 0, file.Size)
			}
		}
	}
}

// checkpoint fetches one, its manifest last.
func (f *fetcher) checkpoint(ctx context.Context, c checkpoint) error {
	if c.missing != "" {
		return errors.New(c.missing)
	}
	if err := os.MkdirAll(filepath.Join(f.dir, filepath.FromSlash(c.folder)), 0o777); err != nil {
		return err
	}
	last := len(c.files) - 1
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, file := range c.files[:last] {
		g.Go(func() error { return f.file(ctx, c.folder, file, i) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return f.file(ctx, c.folder, c.files[last], 0)
}

// file fetches a file from one of the hosts that have it, the turn-th first so
// that all of them carry their part, and from another one where that fails.
func (f *fetcher) file(ctx context.Context, folder string, file keptFile, turn int) error {
	name := path.Join(folder, file.Name)
	var errs []error
	for try := range file.hosts {
		s := f.stations[file.hosts[(turn+try)%len(file.hosts)]]
		there, err := store(ctx, filepath.Join(f.dir, filepath.FromSlash(name)), file.KeptFile, func(ctx context.Context, w io.Writer) error {
			return s.fetch(ctx, agent.Wanted{Name: f.name, File: name}, &passing{w: w, f: f, name: name, size: file.Size})
		})
		if err == nil {
			f.took(name, file, there)
			return nil
		}
		if errors.As(err, new(ownFault)) || ctx.Err() != nil {
			return err
		}
		errs = append(errs, s.named(err))
	}
	return errors.Join(errs...)
}

func (f *fetcher) took(name string, file keptFile, there bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.taken[name] {
		return // in a round before
	}
	if f.taken == nil {
		f.taken = map[string]bool{}
	}
	f.taken[name] = true
	f.files++
	if there {
		f.there++
		return
	}
	f.bytes += file.Size
}

// passing shows on the meter what passes through it.
type passing struct {
	w          io.Writer
	f          *fetcher
	name       string
	sent, size int64
}

func (c *passing) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.sent += int64(n)
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.f.meter.moved("", c.name, c.sent, c.size)
	return n, err
}

// maxList bounds what a host may list, in bytes.
const maxList = 64 << 20

// kept asks a host which checkpoints of a name it has.
func (s *station) kept(ctx context.Context, name string) ([]agent.Kept, error) {
	var out capped
	if err := s.fetch(ctx, agent.Wanted{Name: name}, &out); err != nil {
		return nil, err
	}
	return decodeKept(out.text)
}

func decodeKept(text []byte) ([]agent.Kept, error) {
	var list []agent.Kept
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var k agent.Kept
		err := d.Decode(&k)
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err == nil {
			err = checkKept(k)
		}
		if err != nil {
			return nil, fmt.Errorf("list of checkpoints: %w", err)
		}
		list = append(list, k)
	}
}

// capped keeps what a host lists.
type capped struct{ text []byte }

func (c *capped) Write(p []byte) (int, error) {
	if len(c.text)+len(p) > maxList {
		return 0, fmt.Errorf("more than %d bytes", maxList)
	}
	c.text = append(c.text, p...)
	return len(p), nil
}

// fetch runs "agent fetch" on the host.
func (s *station) fetch(ctx context.Context, want agent.Wanted, to io.Writer) error {
	line, err := json.Marshal(want)
	if err != nil {
		return err
	}
	stderr := tail{limit: 4 << 10}
	err = s.Run(ctx, s.command("fetch"), bytes.NewReader(append(line, '\n')), to, &stderr)
	if exitStatus(err) == 127 {
		return errors.New("the agent of the job is not there any more: it was pruned")
	}
	if err != nil {
		return explain(err, stderr.String())
	}
	return nil
}

// fetch brings the job's checkpoints here, once its logs are printed. A further
// signal of the user ends it.
func (l *launch) fetch(ctx context.Context, stops <-chan coordinator.StopAsked) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	done := make(chan struct{})
	defer close(done)
	defer cancel(nil)
	go func() {
		select {
		case stop := <-stops:
			cancel(&coded{fmt.Errorf("the checkpoints are not all fetched: %s; plx fetch %s %s goes on", stop.Reason, l.job, l.cfg.Fetch), stop.Code})
		case <-done:
		}
	}()
	f := &fetcher{stations: l.stations, name: l.checkpoints, dir: l.cfg.Fetch, voice: l.voice,
		meter: newMeter(l.cfg.Terminal, l.voice, "fetching")}
	return f.run(ctx)
}

// Fetch brings the checkpoints of a job into a folder of this machine, while it
// runs or after.
func Fetch(ctx context.Context, q Query, dir string) error {
	j, err := q.open(ctx, false)
	if err != nil {
		return err
	}
	defer j.fleet.Close() // nothing was written there
	if err := writable(dir); err != nil {
		return Mistake(err, "")
	}
	f := &fetcher{stations: j.stations, name: j.checkpointName(), dir: dir, voice: j.voice, meter: newMeter(q.Terminal, j.voice, "fetching")}
	return f.run(ctx)
}
