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

// Names of folders below Request.Dir.
const (
	// outputsFolder contains one folder per host. A host's folder contains one
	// folder per task and one per location that package protocol defines
	// (HostOutput.Place).
	outputsFolder = "outputs"
	logsFolder    = "logs"
)

// outputs fetches the job's outputs and logs, and returns the number n of
// files that it fetched. had is true if the job's checkpoints were fetched
// before. The error joins the errors of hosts and files.
//
// Hosts that do not reply are no error, and outputs only prints them, if the
// user named no files, and checkpoints were fetched or logs were not requested.
func (f *fetcher) outputs(ctx context.Context, had bool) (n int, err error) {
	f.bar = f.from.Printer.NewTransfer("fetching")
	defer f.bar.Close()
	lists, err := f.listOutputs(ctx)
	all := f.from.Wanted.Made // true if fetched logs count in n
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
		f.tell(some(lines, maxReported, "also not fetched: ", "log"))
	}
	return n, errors.Join(err, lost, f.joined(errs), f.note(ctx, fetched))
}

// listOutputs asks every host which of the requested files it has. lists is
// indexed like f.from.Hosts.
func (f *fetcher) listOutputs(ctx context.Context) (lists [][]protocol.HostOutput, err error) {
	lists = make([][]protocol.HostOutput, len(f.from.Hosts))
	what := "outputs"
	if f.from.Wanted.Patterns == nil {
		what = "outputs and logs"
	}
	return lists, hosts.Each(ctx, f.from.Hosts, func(i int, a *hosts.AgentHost) error {
		var all []protocol.HostOutput
		err := errors.New("it was not reached") // used for a host without a connection: listCheckpoints has already printed why
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

// fetched returns, for each host, the listed outputs that are now complete on
// this machine.
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
	maxReported        = 3    // at most this number of lines is printed about outputs that cannot be fetched
	maxEscapedReported = 20   // at most this number of lines is printed about outputs with an escaped name
	maxFolded          = 1000 // at most this number of lines is compared to find lines that differ only in the host; comparing more takes too long
)

// report prints which outputs are not files that can be fetched, such as links
// and devices, and which patterns match no file. It returns an error for files
// that should have been fetched but cannot be.
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
	f.tell(some(others, maxReported, "also not fetched: ", "output"))
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
	for _, line := range some(lost, maxReported, "also not fetched: ", "output") {
		errs = append(errs, errors.New(line))
	}
	return errors.Join(errs...)
}

// reportEscaped prints which outputs have another name on this machine than on
// their host, because plx escapes special characters.
func (f *fetcher) reportEscaped(fetched [][]protocol.HostOutput) {
	var lines []string
	for i, list := range fetched {
		for _, o := range list {
			if o.Path() != o.Name {
				lines = append(lines, fmt.Sprintf(`host %s: output %s/%s: its name is escaped: \xHH stands for a byte`, f.from.Hosts[i].Name(), o.Place, o.Name))
			}
		}
	}
	f.tell(some(lines, maxEscapedReported, "also with escaped names: ", "output"))
}

func (f *fetcher) tell(lines []string) {
	for _, line := range lines {
		f.from.Printer.Printf("%s", line)
	}
}

// some shortens a list of lines; most is the maximum number. It first merges
// lines that differ only in the host. If it omits lines, the last line is the
// text rest with the number of omitted lines. kind is the noun for one of
// them, such as "log".
func some(lines []string, most int, rest, kind string) []string {
	if len(lines) <= maxFolded {
		lines = console.FoldHosts(lines)
	}
	shown := lines[:min(len(lines), most):min(len(lines), most)]
	if more := len(lines) - most; more > 0 {
		shown = append(shown, rest+plural.Count(more, kind))
	}
	return shown
}

// local returns the path below Request.Dir of an output of a host, separated
// by slashes.
func (f *fetcher) local(host int, o protocol.HostOutput) string {
	return path.Join(outputsFolder, f.from.Hosts[host].Folder, o.Place, o.Name)
}

// outputFiles returns the outputs to fetch. Outputs with the same content
// become one file with several paths.
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
			if last := len(w.from) - 1; last < 0 || w.from[last].host != host { // a host may have several outputs with this content, but is listed once
				w.from = append(w.from, origin{host, o.Place, o.Name})
			}
		}
	}
	return all
}

// logFiles returns the logs to fetch. A restart can move a task to another
// host. Then several hosts have a log of the same stream, and each file's name
// ends with the name of its host.
func (f *fetcher) logFiles(lists [][]protocol.HostOutput) (all []file) {
	streams := map[string][]file{}
	for host, list := range lists {
		for _, o := range list {
			to := path.Join(logsFolder, o.Name+"."+f.from.Hosts[host].Folder)
			// The list of hosts contains a host twice if it has left and
			// rejoined the job.
			known := slices.ContainsFunc(streams[o.Name], func(w file) bool { return w.to[0] == to })
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

// maxNoted limits how many outputs the method note lists in one request,
// because the size of a request is limited.
const maxNoted = 10_000

// note sends every host the list of outputs that were fetched from it, so that
// plx prune may remove them.
func (f *fetcher) note(ctx context.Context, fetched [][]protocol.HostOutput) error {
	return hosts.Each(ctx, f.from.Hosts, func(i int, a *hosts.AgentHost) error {
		for some := range slices.Chunk(fetched[i], maxNoted) {
			if err := ask(ctx, a, protocol.FetchRequest{Fetched: some}, io.Discard); err != nil {
				return fmt.Errorf("record what was fetched: %w", err)
			}
		}
		return nil
	})
}
