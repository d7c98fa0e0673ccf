package launcher

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/artifacts"
	"github.com/plx-run/plx/launcher/placement"
)

// decideServers reports whether the program is foreign: it does not link plx's trainer.
// With AutoServers the job then has no servers.
func decideServers(ctx context.Context, c *Config) (foreign bool, err error) {
	links, err := artifacts.LinksTrainer(ctx, c.Program)
	if c.AutoServers {
		c.NoServers = !links
	}
	return !links, err
}

// foreignNotes describes what the user of a foreign program may not expect of a
// placement.
func foreignNotes(c Config, p placement.Placement, machines []placement.Machine) (notes []string) {
	if p.Servers > 0 {
		notes = append(notes, fmt.Sprintf("%s does not link plx's trainer: on servers it gets TF_CONFIG; RANK, WORLD_SIZE, MASTER_ADDR and torch's other variables are set for workers only", c.Program))
	}
	if !c.AutoServers {
		return notes
	}
	for _, m := range machines {
		if m.Devices.Kind == hostfile.ServerOnly {
			notes = append(notes, fmt.Sprintf("host %s gets no task: %s does not link plx's trainer, so the job has no servers (--ps all)", m.Name, c.Program))
		}
	}
	return notes
}
