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

// countTime limits how long Made waits for a host to count its files. The
// limit is short, because Made runs at the end of a command and the user
// waits.
const countTime = 10 * time.Second

// Made counts the files of a job that the user has not fetched. These are the
// files in the job's own folders on the hosts. It asks the hosts in from, and
// adds the counts in known, which the caller has from other hosts. line is a
// text about the files that no --output names; it is "" if there are none.
// named is the number of files that --output names. The error lists the hosts
// that did not reply.
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
