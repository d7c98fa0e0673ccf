package hosts

import (
	"strings"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/logs/style"
)

// PrintProbed prints tables of the hosts and their GPUs. Below the tables it
// explains each state other than ok; hosts with the same explanation share a
// line.
func PrintProbed(t console.Terminal, rows []gpuprobe.Row) error {
	hosts, gpus, notes := gpuprobe.Tables(rows)
	if err := probed(hosts).Write(t); err != nil {
		return err
	}
	if len(gpus) > 1 {
		t.Print("") // error ignored: the table write below returns it
		if err := probed(gpus).Write(t); err != nil {
			return err
		}
	}
	for i, line := range console.FoldHosts(notes) {
		if i == 0 {
			t.Print("") // error ignored: the print below returns it
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

// probedLevel returns the color of a table cell: Good for a host or GPU that a
// job may use, Bad for a host or GPU that no job can use.
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
