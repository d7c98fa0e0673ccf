package hosts

import (
	"strings"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/logs/style"
)

// PrintProbed prints the hosts and their GPUs as tables, and below them why a host is not
// just ok: the same of several hosts once.
func PrintProbed(t console.Terminal, rows []gpuprobe.Row) error {
	hosts, gpus, notes := gpuprobe.Tables(rows)
	if err := probed(hosts).Write(t); err != nil {
		return err
	}
	if len(gpus) > 1 {
		t.Print("") // the error comes with the table
		if err := probed(gpus).Write(t); err != nil {
			return err
		}
	}
	for i, line := range console.FoldHosts(notes) {
		if i == 0 {
			t.Print("") // as above
		}
		if err := t.Print("%s", line); err != nil {
			return err
		}
	}
	return nil
}

func probed(cells [][]string) *console.Table {
	table := console.NewTable(cells[0]...)
	table.Level = probedLevel
	for _, row := range cells[1:] {
		table.Row(row...)
	}
	return table
}

// probedLevel is Good for a host or a GPU that a job may use, and Bad for one that it cannot.
func probedLevel(column, cell string) style.Level {
	switch {
	case column != "STATE" && column != "USED BY":
		return style.Plain
	case cell == "ok" || cell == "free":
		return style.Good
	case cell == "failed" || cell == "lacks GPUs" || strings.HasPrefix(cell, "unusable"):
		return style.Bad
	}
	return style.Doubtful
}
