package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hang"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// stacksTime bounds the request for the stacks of one host's tasks.
const stacksTime = time.Minute

// Stacks prints where in its program each task of a running job is at the
// moment. Tasks that are at the same place share a line. If full is true, it
// prints the complete stacks. For a job that has ended because it hung, Stacks
// prints the stacks that the agents wrote to files before they ended the job.
func Stacks(ctx context.Context, q Query, full bool) error {
	j, err := q.open(ctx, false)
	if err != nil {
		return err
	}
	defer j.close()
	ctx, cancel := within(ctx, stacksTime)
	defer cancel()
	ended, _ := j.ended(ctx)
	read := askStacks
	if ended {
		read = readStacks
	}
	present := j.present()
	texts := make([]string, len(present))
	err = hosts.Each(ctx, present, func(i int, a *hosts.AgentHost) (err error) {
		if texts[i], err = read(ctx, a); err != nil {
			return fmt.Errorf("stacks of job %s: %w", j.Job, err)
		}
		return nil
	})
	found := slices.ContainsFunc(texts, func(text string) bool { return text != "" })
	switch {
	case err == nil && !found && ended:
		return exit.WithHint(fmt.Errorf("job %s has ended, and no stacks were written", j.Job), "plx stacks works while a job runs; a job that ends because it hung leaves its stacks")
	case err == nil && !found:
		return errors.New("job " + j.Job + ": no task runs")
	case !full:
		return errors.Join(err, printPlaces(q.Terminal, present, texts))
	}
	for i, text := range texts {
		if text != "" {
			err = errors.Join(err, printStacks(q.Terminal, present[i].Name(), text))
		}
	}
	return err
}

// printPlaces prints what each task was doing in its newest stack. texts are
// the stacks on each host, indexed like present.
func printPlaces(t console.Terminal, present []*hosts.AgentHost, texts []string) error {
	last := map[cluster.Task]time.Time{}
	doing := map[cluster.Task]hang.Doing{}
	for i, text := range texts {
		for _, h := range protocol.StacksHeads(text) {
			if _, known := last[h.Task]; known && h.Time.Before(last[h.Task]) {
				continue
			}
			what := cmp.Or(strings.Join(h.Places, "; "), "not known")
			last[h.Task], doing[h.Task] = h.Time, hang.Doing{Task: h.Task, Host: present[i].Name(), What: what}
		}
	}
	for _, line := range hang.Groups(slices.Collect(maps.Values(doing))) {
		if err := t.Print("%s", line); err != nil {
			return err
		}
	}
	return nil
}

// askStacks requests the stacks of a host's tasks from the agent of a running
// job.
func askStacks(ctx context.Context, a *hosts.AgentHost) (string, error) {
	_, seen, err := ask(ctx, a, protocol.ActivityRequest{Stacks: true, Tell: true})
	var text strings.Builder
	workersFirst := func(a, b cluster.Task) int { return compareTasks(a.String(), b.String()) }
	for _, name := range slices.SortedFunc(maps.Keys(seen.Tasks), workersFirst) {
		fmt.Fprintf(&text, "%s\n", seen.Tasks[name].Stacks)
	}
	return text.String(), err
}

// maxKept bounds how many bytes of stack files plx reads from one host.
const maxKept = 64 << 20

// readStacks reads the files in which the agent has stored the stacks of a job
// that hung.
func readStacks(ctx context.Context, a *hosts.AgentHost) (string, error) {
	script := fmt.Sprintf(`for f in "$HOME"/.plx/jobs/%s/%s/stacks/*.txt; do if [ -r "$f" ]; then cat "$f"; echo; fi; done | head -c %d`, a.Job, a.Folder, maxKept)
	var stdout hosts.BoundedBuffer
	err := a.Run(ctx, script, nil, &stdout, nil)
	return stdout.String(), err
}

// printStacks prints the complete stacks of a host's tasks.
func printStacks(t console.Terminal, host, text string) error {
	err := cmp.Or(t.Print("host %s:", host), t.Print(""))
	for line := range strings.Lines(text) {
		err = cmp.Or(err, t.Print("%s", strings.ReplaceAll(line, "\t", "    ")))
	}
	return err
}
