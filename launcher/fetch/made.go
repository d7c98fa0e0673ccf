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

// countTime is how long Made waits for a host's count, because the user waits
// for the command to finish.
const countTime = 10 * time.Second

// Made counts the files that a job has made in its own folders on the hosts
// and that the user has not fetched. known has the counts of hosts that need
// not be asked. line describes the files that no --output names; it is "" if
// there are none. named is the number of files that --output names. The error
// lists the hosts that did not reply.
func Made(ctx context.Context, job string, from []*hosts.AgentHost, known ...protocol.FileCounts) (line string, named int, err error) {
	counts := make([]protocol.FileCounts, len(from), len(from)+len(known))
	err = hosts.Each(ctx, from, func(i int, a *hosts.AgentHost) error {
		ctx, cancel, err := a.WithTimeout(ctx, countTime)
		if err == nil {
			defer cancel()
			err = list(ctx, a, protocol.FetchRequest{Count: true}, &lines[protocol.FileCounts]{take: func(m protocol.FileCounts) error {
				counts[i] = m
				return nil
			}})
		}
		if err != nil {
			return fmt.Errorf("count the files that the job made: %w", err)
		}
		return nil
	})
	on, all := 0, protocol.FileCounts{}
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
