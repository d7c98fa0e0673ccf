package provision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/transport"
)

// newest is a writer for a host's output. It shows the last line of the output
// in the progress display. A command's stdout and stderr may both write to it.
type newest struct {
	tally *console.HostProgress
	host  string
}

func (n *newest) Write(p []byte) (int, error) {
	if lines := textLines(string(p)); len(lines) > 0 {
		n.tally.Note(n.host, shortened(strings.TrimSpace(lines[len(lines)-1])))
	}
	return len(p), nil
}

// setUp runs the --setup line of a job once on each host, in the working
// directory. The environment has the variables of the Spec and those of the
// host's line in the resource file. While the line runs, setUp shows the last
// line of each host's output. At the end it prints all output. A host that has
// already run the line for this job does not run it again.
func (r *Recipe) setUp(ctx context.Context, on []*Target) error {
	if !r.Spec.Command.SetupDone {
		return nil
	}
	tally := r.Printer.NewHostProgress("running --setup", len(on))
	outputs := make([][]string, len(on))
	err := each(ctx, on, tally, func(i int, t *Target) (err error) {
		outputs[i], err = runSetup(ctx, t.AgentHost, r.Spec, &newest{tally, t.Name()})
		return err
	})
	if err != nil {
		return exit.WithHint(fmt.Errorf("--setup '%s': %w", shortened(string(r.Spec.Command.Setup)), err), exit.Hint(err))
	}
	var lines []string
	for i, t := range on {
		for _, line := range outputs[i] {
			lines = append(lines, fmt.Sprintf("host %s: --setup: %s", t.Name(), line))
		}
	}
	r.Printer.Lines(lines)
	return nil
}

// shownLines is the number of output lines that the error of a failed --setup
// contains.
const shownLines = 10

// runSetup runs the --setup line on one host and returns the lines of its
// output.
func runSetup(ctx context.Context, a *hosts.AgentHost, spec protocol.Spec, live io.Writer) ([]string, error) {
	stdout, stderr, err := hosts.Ask(ctx, a, protocol.ExecRequest{Command: spec.Command, Env: spec.EnvOf(a.Resource.Env), MaxTime: spec.SetupTime,
		Job: a.Job, Folder: a.Folder, Setup: true}, live)
	lines := slices.Concat(textLines(stdout), textLines(stderr))
	if err == nil {
		return lines, nil
	}
	hint := "the line runs in the working directory, once on each host; no task was started"
	if status := transport.ExitStatus(err); status == protocol.ExecTimedOut {
		err, hint = fmt.Errorf("it ran longer than %s", spec.SetupTime), "--setup-timeout sets the limit; no task was started"
	} else if status > 0 {
		err = fmt.Errorf("it ended with status %d", status)
	}
	text := err.Error()
	for _, line := range lines[max(0, len(lines)-shownLines):] {
		text += "\n  " + line
	}
	return nil, exit.WithHint(errors.New(text), hint)
}

// textLines splits an output into lines, without empty lines and without plx's
// own prefixes.
func textLines(text string) (lines []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		// A progress bar overwrites its line by means of "\r"; keep its last
		// state.
		line = line[strings.LastIndexByte(line, '\r')+1:]
		for _, prefix := range []string{"plx agent: ", "plx: --setup: ", "--setup: "} {
			line = strings.TrimPrefix(line, prefix)
		}
		if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "plx: --setup ended with status ") && !strings.HasPrefix(line, "the command was ended: ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// shortened returns at most the first 60 characters of a text, in one line.
func shortened(line string) string {
	const most = 60
	runes := []rune(strings.ReplaceAll(line, "\n", "; "))
	if len(runes) <= most {
		return string(runes)
	}
	return string(runes[:most]) + "..."
}
