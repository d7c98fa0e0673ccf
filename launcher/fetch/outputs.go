package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// Folders below Request.Dir.
const (
	// outputsFolder has a folder of each host, and there one of each task, or one of the places of
	// package protocol.
	outputsFolder = "outputs"
	logsFolder    = "logs"
)

// outputs fetches the outputs and the logs of the job, after its checkpoints. It returns how many
// outputs were fetched, and the errors of hosts and files. had tells that the checkpoints have come.
// If nobody named files then a host that does not answer is reported and no error.
func (f *fetcher) outputs(ctx context.Context, had bool) (n int, err error) {
	f.bar = f.from.Printer.NewTransfer("fetching")
	defer f.bar.Close()
	lists, err := f.listOutputs(ctx)
	all := f.from.Wanted.Made // the logs are among them
	named := len(f.from.Outputs) > 0 || f.from.Wanted.Patterns != nil
	if !named && (had || !all) && err != nil && ctx.Err() == nil {
		f.from.Printer.Error(err)
		err = nil
	}
	outputs, logs := f.outputFiles(lists), f.logFiles(lists)
	f.expect(slices.Concat(outputs, logs))
	made, printed := newTally("output"), newTally("log")
	errs := f.all(ctx, outputs, made)
	logErrs := f.all(ctx, logs, printed)
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	fetched := f.fetched(lists, made)
	lost := f.report(lists)
	f.reportEscaped(fetched)
	job := f.from.Hosts[0].Job
	if n = len(made.done); n > 0 {
		f.summarise(made, plural.Count(n, "output"), job, filepath.Join(f.from.Dir, outputsFolder))
	}
	if n := len(printed.done); n > 0 {
		f.summarise(printed, plural.Count(n, "log"), job, filepath.Join(f.from.Dir, logsFolder))
	}
	if all {
		n, errs = n+len(printed.done), append(errs, logErrs...)
	} else {
		var lines []string
		for _, err := range logErrs {
			if err != nil {
				lines = append(lines, err.Error())
			}
		}
		f.tell(some(lines, mostTold, "not fetched besides: ", "log"))
	}
	return n, errors.Join(err, lost, f.joined(errs), f.note(ctx, fetched))
}

// listOutputs asks every host which of the wanted files it has.
func (f *fetcher) listOutputs(ctx context.Context) (lists [][]protocol.HostOutput, err error) {
	lists = make([][]protocol.HostOutput, len(f.from.Hosts))
	what := "outputs"
	if f.from.Wanted.Patterns == nil {
		what = "outputs and logs"
	}
	return lists, hosts.Each(ctx, f.from.Hosts, func(i int, a *hosts.AgentHost) error {
		var all []protocol.HostOutput
		err := errors.New("it was not reached") // for its checkpoints, which has been reported
		if a.Connected() || f.from.Wanted.Patterns != nil {
			err = list(ctx, a, protocol.FetchRequest{Wanted: f.from.Wanted}, listOfOutputs(&all))
		}
		if err != nil {
			return fmt.Errorf("its %s are not fetched: %w", what, err)
		}
		lists[i] = all
		return nil
	})
}

// fetched returns which outputs of each host have come.
func (f *fetcher) fetched(lists [][]protocol.HostOutput, made *tally) [][]protocol.HostOutput {
	fetched := make([][]protocol.HostOutput, len(lists))
	for host, list := range lists {
		for _, o := range list {
			if made.done[f.local(host, o)] {
				fetched[host] = append(fetched[host], o)
			}
		}
	}
	return fetched
}

const (
	mostTold   = 3    // lines about outputs that cannot be fetched
	mostNamed  = 20   // lines about outputs with an escaped name
	mostFolded = 1000 // more take long to compare
)

// report prints which outputs are nothing that can be fetched, and which patterns no file
// matches. It returns an error for the files that cannot be fetched.
func (f *fetcher) report(lists [][]protocol.HostOutput) error {
	var others, lost []string
	for i, list := range lists {
		for _, o := range list {
			line := fmt.Sprintf("host %s: output %s/%s is not fetched: %s", f.from.Hosts[i].Name(), o.Place, o.Name, o.Damage)
			switch {
			case o.Lost && (o.Place != protocol.LogsPlace || f.from.Wanted.Made):
				lost = append(lost, line)
			case o.Damage != "":
				others = append(others, line)
			}
		}
	}
	f.tell(some(others, mostTold, "not fetched besides: ", "output"))
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
	for _, line := range some(lost, mostTold, "not fetched besides: ", "output") {
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
	f.tell(some(lines, mostNamed, "with escaped names besides: ", "output"))
}

func (f *fetcher) tell(lines []string) {
	for _, line := range lines {
		f.from.Printer.Printf("%s", line)
	}
}

// some returns at most that many of lines about files of a kind, and what they say of several hosts
// once. After rest it says how many there are besides.
func some(lines []string, most int, rest, kind string) []string {
	if len(lines) <= mostFolded {
		lines = console.FoldHosts(lines)
	}
	shown := lines[:min(len(lines), most):min(len(lines), most)]
	if more := len(lines) - most; more > 0 {
		shown = append(shown, rest+plural.Count(more, kind))
	}
	return shown
}

// local returns the path of an output below Request.Dir, with slashes.
func (f *fetcher) local(host int, o protocol.HostOutput) string {
	return path.Join(outputsFolder, f.from.Hosts[host].Folder, o.Place, o.Name)
}

// outputFiles puts outputs with the same bytes together, in the order of their first places.
func (f *fetcher) outputFiles(lists [][]protocol.HostOutput) (all []file) {
	type key struct {
		sum  string
		size int64
	}
	at := map[key]int{}
	for host, list := range lists {
		for _, o := range list {
			if o.Damage != "" || o.Place == protocol.LogsPlace {
				continue
			}
			k := key{o.Sum, o.Size}
			i, known := at[k]
			if !known {
				i = len(all)
				at[k], all = i, append(all, file{size: o.Size, sum: o.Sum})
			}
			w := &all[i]
			w.to = append(w.to, f.local(host, o))
			if last := len(w.from) - 1; last < 0 || w.from[last].host != host { // each host is tried once
				w.from = append(w.from, origin{host, o.Place, o.Name})
			}
		}
	}
	return all
}

// logFiles returns the logs. If several hosts have logs of one stream, since a restart has moved its
// task, the name of the file of each ends in its host.
func (f *fetcher) logFiles(lists [][]protocol.HostOutput) (all []file) {
	streams := map[string][]file{}
	for host, list := range lists {
		for _, o := range list {
			to := path.Join(logsFolder, o.Name+"."+f.from.Hosts[host].Folder)
			known := slices.ContainsFunc(streams[o.Name], func(w file) bool { return w.to[0] == to }) // a host that came back to the job is in it twice
			if o.Place == protocol.LogsPlace && o.Damage == "" && !known {
				streams[o.Name] = append(streams[o.Name], file{size: o.Size, sum: o.Sum, log: true, from: []origin{{host, o.Place, o.Name}}, to: []string{to}})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(streams)) {
		if files := streams[name]; len(files) == 1 {
			files[0].to[0] = path.Join(logsFolder, name)
		}
		all = append(all, streams[name]...)
	}
	return all
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
