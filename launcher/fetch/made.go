package fetch

import (
	"context"
	"fmt"
	"time"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// countTime bounds the count of files on a host, so that it keeps nobody from the prompt.
const countTime = 10 * time.Second

// Made counts what a job has left in its own folders on hosts, and that no output names and
// nobody has fetched. known has the counts of hosts that need not be asked. It returns a line
// for the user, or "" if there is nothing, and how many files an output names. An error names hosts
// that do not answer.
func Made(ctx context.Context, job string, from []*hosts.AgentHost, known ...protocol.Made) (line string, named int, err error) {
	counts := make([]protocol.Made, len(from), len(from)+len(known))
	err = hosts.Each(ctx, from, func(i int, a *hosts.AgentHost) error {
		ctx, cancel, err := a.WithTimeout(ctx, countTime)
		if err == nil {
			defer cancel()
			err = list(ctx, a, protocol.FetchRequest{Count: true}, &lines[protocol.Made]{take: func(m protocol.Made) error {
				counts[i] = m
				return nil
			}})
		}
		if err != nil {
			return fmt.Errorf("what the job made is not counted: %w", err)
		}
		return nil
	})
	on, all := 0, protocol.Made{}
	for _, c := range append(counts, known...) {
		all.Files += c.Files
		all.Bytes += c.Bytes
		named += c.Named
		if c.Files > 0 {
			on++
		}
	}
	if on == 0 {
		return "", named, err
	}
	return fmt.Sprintf("made %s, %s, on %s: plx fetch %s DIR", plural.Count(all.Files, "file"), console.Size(all.Bytes), plural.Count(on, "host"), job), named, err
}
