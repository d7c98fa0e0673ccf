// Package fetch brings the checkpoints and the outputs of a job from its hosts into one
// folder of this machine.
//
//	err := fetch.Job(ctx, fetch.Request{Hosts: agents, Name: "mnist", Dir: "saved", Printer: p})
//
// Hosts keep parts of a checkpoint, and some parts twice: gather.go puts together what
// they list. Outputs are the files that --output names, and summaries and timelines
// (outputs.go). Each file is verified against the sum that the host lists, and no file is
// replaced. No name that a host lists leads out of the folder, or to a name at its top
// that begins with a dot.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// Request tells what to fetch, and where to.
type Request struct {
	Hosts    []*hosts.AgentHost // to fetch from
	Name     string             // of the checkpoints: a folder under ~/.plx/ckpt on the hosts
	Outputs  []protocol.Output  // outputs that the job was launched with; nil: it has none
	Wanted   protocol.Wanted    // which files to fetch besides Outputs; with Patterns no checkpoints
	Dir      string             // folder of this machine to write to
	Terminal console.Terminal
	Printer  *console.Printer
}

// fetcher is one run of checkpoints or of outputs.
type fetcher struct {
	from Request
	bar  *console.Transfer

	mu    sync.Mutex
	taken map[string]bool // files that are complete in Request.Dir, by path below it
	files int             // number of taken files
	there int             // number of taken files that an earlier fetch had left there
	bytes int64           // size of the taken files that this run has fetched
}

// checkpoints fetches every checkpoint of which the hosts have all files. It reports a
// host that is out of reach and a checkpoint that cannot be fetched. It is an error if
// that is the newest checkpoint of its folder, or if there is no checkpoint at all.
func checkpoints(ctx context.Context, r Request) error {
	f := newFetcher(r)
	defer f.bar.Close()
	return f.run(ctx)
}

func newFetcher(r Request) *fetcher {
	return &fetcher{from: r, bar: r.Printer.NewTransfer("fetching"), taken: map[string]bool{}}
}

// errNone says that there is nothing to fetch.
type errNone struct {
	error
	unreached bool // on the hosts that were reached
}

// Nothing reports whether an error of Job says only that the job has made nothing that was
// to be fetched.
func Nothing(err error) bool {
	none, ok := err.(errNone)
	return ok && !none.unreached
}

// Job fetches the checkpoints and the files of a job. It is an error if there are neither,
// or if a file cannot be fetched; see also Nothing.
func Job(ctx context.Context, r Request) error {
	var err error = errNone{error: errors.New("no file of the job matches")}
	if r.Wanted.Patterns == nil {
		err = checkpoints(ctx, r)
	}
	if len(r.Outputs) == 0 && !r.Wanted.Made && r.Wanted.Patterns == nil || ctx.Err() != nil || errors.As(err, new(errFull)) {
		return err
	}
	f := newFetcher(r)
	defer f.bar.Close()
	n, failed := f.outputs(ctx, err == nil && len(r.Outputs) == 0)
	switch none := new(errNone); {
	case !errors.As(err, none):
		return errors.Join(err, failed)
	case n > 0 || failed != nil && r.Wanted.Patterns != nil:
		return failed
	case failed != nil:
		return errors.Join(err, failed)
	}
	return err
}

// DirHint is the hint for an error of [Writable].
const DirHint = "name a folder of this machine that you may write into, such as fetched: plx makes it"

// Writable makes a folder, and refuses it if it takes no files.
func Writable(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	trial, err := os.CreateTemp(dir, ".plx-*")
	if err != nil {
		return err
	}
	return errors.Join(trial.Close(), os.Remove(trial.Name()))
}

// atOnce is how many files are fetched at the same time.
const atOnce = 8

// list asks every host for its checkpoints. It reports hosts that are out of reach.
func (f *fetcher) list(ctx context.Context) (lists [][]protocol.HostCheckpoint, err error) {
	lists = make([][]protocol.HostCheckpoint, len(f.from.Hosts))
	return lists, hosts.Each(ctx, f.from.Hosts, func(i int, a *hosts.AgentHost) (err error) {
		if lists[i], err = kept(ctx, a, f.from.Name); err != nil && ctx.Err() == nil { // else the user has left
			f.from.Printer.Error(a.Named(fmt.Errorf("its checkpoints are not fetched: %w", err)))
		}
		for _, k := range lists[i] {
			if k.Damage != "" {
				f.from.Printer.Printf("host %s: checkpoint %s: its manifest is unreadable: %s", a.Name(), k.Folder, k.Damage)
			}
		}
		return err
	})
}

// checkpoint fetches the files of a checkpoint, the manifest last.
func (f *fetcher) checkpoint(ctx context.Context, c checkpoint) error {
	if c.missing != "" {
		return errors.New(c.missing)
	}
	if err := os.MkdirAll(filepath.Join(f.from.Dir, filepath.FromSlash(c.folder)), 0o777); err != nil {
		return ownFault{err}
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

// file fetches a file from one of the hosts that have it. It begins with another host
// for each turn, and tries the next host if one fails.
func (f *fetcher) file(ctx context.Context, folder string, file keptFile, turn int) error {
	name := path.Join(folder, file.Name)
	var errs []error
	for try := range file.hosts {
		s := f.from.Hosts[file.hosts[(turn+try)%len(file.hosts)]]
		there, err := store(ctx, filepath.Join(f.from.Dir, filepath.FromSlash(name)), file.CheckpointFile, func(ctx context.Context, w io.Writer, offset int64) error {
			return fetch(ctx, s, protocol.FetchRequest{Checkpoints: f.from.Name, Name: name, Offset: offset, Size: file.Size}, &passing{w: w, f: f, name: name, sent: offset, size: file.Size})
		})
		if err == nil {
			f.took(name, file, there)
			return nil
		}
		if errors.As(err, new(ownFault)) || ctx.Err() != nil {
			return err
		}
		errs = append(errs, s.Named(err))
	}
	return errors.Join(errs...)
}

func (f *fetcher) took(name string, file keptFile, there bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.taken[name] {
		return // in an earlier round
	}
	f.taken[name] = true
	f.files++
	if there {
		f.there++
		return
	}
	f.bytes += file.Size
}

// passing shows on the progress bar what is written to it.
type passing struct {
	w          io.Writer
	f          *fetcher
	name       string // path of the file below Request.Dir
	sent, size int64  // bytes that were written, and the file's size
}

func (c *passing) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.sent += int64(n)
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.f.bar.Moved("", c.name, c.sent, c.size)
	return n, err
}

// mostRounds is how often hosts are asked. A running job makes new checkpoints and
// removes old ones, also such that a host has just listed.
const mostRounds = 5

// run fetches what the hosts list, and asks them again if a newest checkpoint was
// removed meanwhile.
func (f *fetcher) run(ctx context.Context) error {
	for n, before := 1, []string(nil); ; n++ {
		lists, unreached := f.list(ctx)
		if err := context.Cause(ctx); err != nil {
			return err
		}
		all := gather(lists)
		if len(all) == 0 && unreached != nil {
			return errNone{fmt.Errorf("no host that was reached has checkpoints under the name %s", f.from.Name), true}
		}
		if len(all) == 0 {
			return errNone{error: fmt.Errorf("no host has checkpoints under the name %s, in ~/.plx/ckpt/%s", f.from.Name, f.from.Name)}
		}
		r := f.round(ctx, all)
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if r.gone && unreached == nil && n < mostRounds && !slices.Equal(before, r.first) { // else asking once more shows nothing new
			before = r.first
			continue
		}
		f.bar.Close()
		for _, told := range r.older {
			f.from.Printer.Printf("%s", told)
		}
		f.summarise(console.Count(r.fetched, "checkpoint"), f.from.Name, f.from.Dir)
		return errors.Join(r.newest...)
	}
}

// summarise prints what was fetched.
func (f *fetcher) summarise(what, of, dir string) {
	already := ""
	if f.there > 0 {
		already = fmt.Sprintf(", %d of them there already", f.there)
	}
	f.from.Printer.Printf("fetched %s of %s into %s: %s, %s%s", what, of, dir, console.Count(f.files, "file"), console.Size(f.bytes), already)
}

// round is the result of fetching what the hosts listed once.
type round struct {
	fetched int      // number of checkpoints that were fetched
	first   []string // names of the newest checkpoint of each folder
	newest  []error  // errors of checkpoints that are the newest of their folder; nil: all were fetched
	older   []string // notices of other checkpoints that could not be fetched
	gone    bool     // a newest checkpoint was not fetched, perhaps because the job removed it meanwhile
}

func (f *fetcher) round(ctx context.Context, all []checkpoint) (r round) {
	for _, c := range all { // so that the progress bar knows the sizes of all files
		for _, file := range c.files {
			if c.missing == "" {
				f.bar.Moved("", path.Join(c.folder, file.Name), 0, file.Size)
			}
		}
	}
	folder := ""
	for _, c := range all {
		newest := path.Dir(c.folder) != folder
		if newest {
			folder = path.Dir(c.folder)
			r.first = append(r.first, c.folder)
		}
		err := f.checkpoint(ctx, c)
		switch {
		case ctx.Err() != nil:
			return r
		case err == nil:
			r.fetched++
		case isFull(err):
			r.newest = []error{f.full(f.missing(all))}
			return r
		case newest:
			r.newest = append(r.newest, fmt.Errorf("checkpoint %s, the newest: %w", c.folder, err))
			r.gone = r.gone || !errors.As(err, new(ownFault))
		default:
			r.older = append(r.older, fmt.Sprintf("checkpoint %s: not fetched: %v", c.folder, err))
		}
	}
	return r
}
