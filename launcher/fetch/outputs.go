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

	"golang.org/x/sync/errgroup"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// outputsFolder is the folder of outputs below Request.Dir. Below it is a folder of each
// host, and there one of each task, or protocol.SharedPlace.
const outputsFolder = "outputs"

// spot is where an output is.
type spot struct {
	host int // index into Request.Hosts
	protocol.HostOutput
}

// blob is the outputs that have the same bytes. They are fetched once.
type blob struct {
	sum   string
	size  int64
	spots []spot
}

// outputs fetches the outputs of the job, after its checkpoints. It returns how many were
// fetched, and the errors of hosts and files. Unasked tells that nobody named files and that
// the checkpoints have come: then a host that does not answer is reported and no error.
func (f *fetcher) outputs(ctx context.Context, unasked bool) (n int, err error) {
	lists, err := f.listOutputs(ctx)
	if unasked && err != nil && ctx.Err() == nil {
		f.from.Printer.Error(err)
		err = nil
	}
	all := blobs(lists)
	for _, c := range all {
		f.bar.Moved("", f.local(c.spots[0]), 0, c.size)
	}
	errs := make([]error, len(all))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, c := range all {
		g.Go(func() error {
			errs[i] = f.blob(ctx, c)
			return nil
		})
	}
	g.Wait() // the functions return nil
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	fetched := make([][]protocol.HostOutput, len(f.from.Hosts))
	for i, c := range all {
		for _, s := range c.spots {
			if errs[i] == nil {
				n++
				fetched[s.host] = append(fetched[s.host], s.HostOutput)
			}
		}
	}
	lost := f.report(lists)
	f.reportEscaped(fetched)
	if n > 0 {
		f.summarise(console.Count(n, "output"), f.from.Hosts[0].Job, filepath.Join(f.from.Dir, outputsFolder))
	}
	return n, errors.Join(err, lost, f.joined(all, errs), f.note(ctx, fetched))
}

const (
	mostTold   = 3    // lines about outputs that cannot be fetched
	mostNamed  = 20   // lines about outputs with an escaped name
	mostFolded = 1000 // more take long to compare
)

// oldName is what agents say that know no escaped names.
const oldName = "its name is too long, or no plain text"

// report prints which outputs are nothing that can be fetched, and which patterns no file
// matches. It returns an error for the files that cannot be fetched.
func (f *fetcher) report(lists [][]protocol.HostOutput) error {
	var others, lost []string
	for i, list := range lists {
		for _, o := range list {
			line := fmt.Sprintf("host %s: output %s/%s is not fetched: %s", f.from.Hosts[i].Name(), o.Place, o.Name, o.Damage)
			switch {
			case o.Lost, o.Damage == oldName:
				lost = append(lost, line)
			case o.Damage != "":
				others = append(others, line)
			}
		}
	}
	const rest = "not fetched besides: "
	for _, line := range some(others, mostTold, rest) {
		f.from.Printer.Printf("%s", line)
	}
	patterns, flag := f.from.Outputs, "--output "
	if f.from.Wanted.Patterns != nil {
		patterns, flag = nil, ""
	}
	for _, p := range f.from.Wanted.Patterns {
		patterns = append(patterns, protocol.Output{Pattern: p})
	}
	for _, o := range patterns {
		if !o.Implied && !slices.ContainsFunc(lists, func(list []protocol.HostOutput) bool { return slices.ContainsFunc(list, o.Names) }) {
			f.from.Printer.Printf("no file matches %s%s", flag, o.Pattern)
		}
	}
	var errs []error
	for _, line := range some(lost, mostTold, rest) {
		errs = append(errs, errors.New(line))
	}
	return errors.Join(errs...)
}

// reportEscaped prints the names of outputs that have others on their hosts.
func (f *fetcher) reportEscaped(fetched [][]protocol.HostOutput) {
	var lines []string
	for i, list := range fetched {
		for _, o := range list {
			if o.Path() != o.Name {
				lines = append(lines, fmt.Sprintf(`host %s: output %s/%s: its name is escaped: \xHH stands for a byte`, f.from.Hosts[i].Name(), o.Place, o.Name))
			}
		}
	}
	for _, line := range some(lines, mostNamed, "with escaped names besides: ") {
		f.from.Printer.Printf("%s", line)
	}
}

// some returns at most that many of lines about outputs, and what they say of several hosts
// once. After rest it says how many there are besides.
func some(lines []string, most int, rest string) []string {
	if len(lines) <= mostFolded {
		lines = console.FoldHosts(lines)
	}
	shown := lines[:min(len(lines), most):min(len(lines), most)]
	if more := len(lines) - most; more > 0 {
		shown = append(shown, rest+console.Count(more, "output"))
	}
	return shown
}

// blobs puts outputs with the same bytes together, in the order of their first spots.
func blobs(lists [][]protocol.HostOutput) (all []blob) {
	type key struct {
		sum  string
		size int64
	}
	at := map[key]int{}
	for host, list := range lists {
		for _, o := range list {
			if o.Damage != "" {
				continue
			}
			k := key{o.Sum, o.Size}
			i, known := at[k]
			if !known {
				i = len(all)
				at[k], all = i, append(all, blob{sum: o.Sum, size: o.Size})
			}
			all[i].spots = append(all[i].spots, spot{host, o})
		}
	}
	return all
}

// local returns the path of an output below Request.Dir, with slashes.
func (f *fetcher) local(s spot) string {
	return path.Join(outputsFolder, f.from.Hosts[s.host].Folder, s.Place, s.Name)
}

// blob fetches the bytes of one output, and copies them to the others.
func (f *fetcher) blob(ctx context.Context, c blob) error {
	first := f.local(c.spots[0])
	if err := f.fetchBlob(ctx, c, first); err != nil {
		return err
	}
	for _, s := range c.spots[1:] {
		from := func(_ context.Context, w io.Writer, offset int64) error { return f.copy(first, w, offset) }
		if err := f.keep(ctx, c, f.local(s), 0, from); err != nil { // nothing travels
			return err
		}
	}
	return nil
}

// fetchBlob fetches the bytes from one of the hosts that list them. It tries the next host
// if one fails.
func (f *fetcher) fetchBlob(ctx context.Context, c blob, name string) error {
	var errs []error
	tried := map[int]bool{}
	for _, s := range c.spots {
		if tried[s.host] {
			continue
		}
		tried[s.host] = true
		a := f.from.Hosts[s.host]
		err := f.keep(ctx, c, name, c.size, func(ctx context.Context, w io.Writer, offset int64) error {
			return ask(ctx, a, protocol.FetchRequest{Wanted: f.from.Wanted, Place: s.Place, Name: s.Name, Offset: offset, Size: c.size}, &passing{w: w, f: f, name: name, sent: offset, size: c.size})
		})
		if err == nil || ctx.Err() != nil || errors.As(err, new(ownFault)) {
			return err
		}
		errs = append(errs, a.Named(err))
	}
	return errors.Join(errs...)
}

// keep writes an output below Request.Dir. travels is how many bytes come from a host.
func (f *fetcher) keep(ctx context.Context, c blob, name string, travels int64, from source) error {
	file := filepath.Join(f.from.Dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return ownFault{err}
	}
	there, err := store(ctx, file, protocol.CheckpointFile{Name: path.Base(name), Size: c.size, Sum: c.sum}, from)
	if err != nil {
		return fmt.Errorf("output %s: %w", name, err)
	}
	f.took(name, keptFile{CheckpointFile: protocol.CheckpointFile{Size: travels}}, there)
	return nil
}

// copy writes a file that was fetched before.
func (f *fetcher) copy(name string, to io.Writer, offset int64) error {
	file, err := os.Open(filepath.Join(f.from.Dir, filepath.FromSlash(name)))
	if err != nil {
		return ownFault{err}
	}
	defer file.Close() // only read
	if _, err = file.Seek(offset, io.SeekStart); err == nil {
		_, err = io.Copy(to, file)
	}
	return err
}

// mostNoted bounds the outputs in one request, which has a bound in bytes.
const mostNoted = 10_000

// note tells every host which outputs were fetched, so that plx prune may remove them.
func (f *fetcher) note(ctx context.Context, fetched [][]protocol.HostOutput) error {
	return hosts.Each(ctx, f.from.Hosts, func(i int, a *hosts.AgentHost) error {
		for some := range slices.Chunk(fetched[i], mostNoted) {
			if err := ask(ctx, a, protocol.FetchRequest{Fetched: some}, io.Discard); err != nil {
				return fmt.Errorf("note what was fetched: %w", err)
			}
		}
		return nil
	})
}

// listOutputs asks every host which of the wanted files it has.
func (f *fetcher) listOutputs(ctx context.Context) (lists [][]protocol.HostOutput, err error) {
	lists = make([][]protocol.HostOutput, len(f.from.Hosts))
	return lists, hosts.Each(ctx, f.from.Hosts, func(i int, a *hosts.AgentHost) error {
		var all []protocol.HostOutput
		err := errors.New("it was not reached") // for its checkpoints, which has been reported
		if a.Connected() || f.from.Wanted.Patterns != nil {
			err = list(ctx, a, protocol.FetchRequest{Wanted: f.from.Wanted}, listOfOutputs(&all))
		}
		if err != nil {
			return fmt.Errorf("its outputs are not fetched: %w", err)
		}
		lists[i] = all
		return nil
	})
}
