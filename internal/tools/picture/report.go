package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// reportName is the name of the picture that shows a report.
const reportName = "report"

// reportCommands run two trainings, one of which restarts, and write a report
// on both.
var reportCommands = []string{
	"plx launch --name slow --hosts resources.txt ./examples/mlp --arch ps --niters 12000 --learning-rate 0.005 --ckpt-dir ckpt --ckpt-every-steps 4000",
	"plx launch --name fast --hosts resources.txt ./examples/mlp --arch allreduce --niters 12000 --learning-rate 0.05",
	"plx report slow fast -o report.html",
}

// Size of the screenshot in pixels.
const reportWidth, reportHeight = 1000, 1500

// report runs the commands on test hosts and writes a screenshot of the
// report, made with Chromium.
func report(path string) (err error) {
	cluster, err := testhosts.Open(testhosts.Options{Hosts: 2}, testhosts.ReportTo(os.Stderr))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	folder, bin := filepath.Join(cluster.Home, "plx"), filepath.Join(cluster.Home, "bin")
	if err := prepare(folder, bin); err != nil {
		return err
	}
	caches, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		return err
	}
	words := strings.Fields(string(caches))
	shot := fmt.Sprintf("chromium --headless --no-sandbox --hide-scrollbars --window-size=%d,%d --screenshot=report.png file://%s/report.html", reportWidth, reportHeight, folder)
	for _, command := range append(reportCommands, shot) {
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "HOME="+cluster.Home, "PATH="+bin+":"+os.Getenv("PATH"), "GOCACHE="+words[0], "GOMODCACHE="+words[1], "PLX_HOSTS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", command, err, out)
		}
	}
	picture, err := os.ReadFile(filepath.Join(folder, "report.png"))
	if err != nil {
		return err
	}
	return os.WriteFile(path, picture, 0o644)
}
