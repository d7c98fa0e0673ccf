package main

import (
	"strconv"
	"strings"
	"time"
)

// measures is what a transcript tells of a fault. Times are seconds after it;
// -1: it never came to that.
type measures struct {
	Noticed     float64 `json:"noticed"`     // the first line about it
	Back        float64 `json:"back"`        // the first step of the last generation; without another one the next step
	Redone      int     `json:"redone"`      // steps that were made twice, of all generations, or by the next launch
	Generations int     `json:"generations"` // after the first
	Struck      int     `json:"struck"`      // the last step before it
	Reached     int     `json:"reached"`     // the last step of a job that ended
	Resumed     int     `json:"resumed"`     // steps that were not made again by the launch that went on; -1: none did
	Unsaved     int     `json:"unsaved"`     // checkpoints that the last generation could not make
	Digest      string  `json:"digest"`      // of all weights at the end
	Told        int     `json:"told"`        // steps made twice, as plx says, of all generations; -1: it says nothing
	Least       bool    `json:"least"`       // it says at least so many
}

// unmeasured is what is known without a transcript.
var unmeasured = measures{Noticed: -1, Back: -1, Struck: -1, Resumed: -1, Told: -1}

// measure reads what happened around a fault that came at a time.
func measure(lines []line, fault time.Time) measures {
	m := unmeasured
	generation, last := 0, -1
	for _, l := range lines {
		m.read(l.text)
		since := l.at.Sub(fault).Seconds()
		g, step, ok := stepOf(l.text)
		if !ok {
			if since >= 0 && m.Noticed < 0 && about(l.text) {
				m.Noticed = since
			}
			continue
		}
		if since < 0 {
			m.Struck = step
		}
		if g > generation {
			m.Redone += max(0, last+1-step)
			m.Generations += g - generation
			m.Back = since
		}
		generation, last = g, step
	}
	if m.Generations == 0 {
		m.Back = nextStep(lines, fault, m.Noticed)
	}
	return m
}

// nextStep is when the first step was made after a fault and, if it was
// noticed, after that.
func nextStep(lines []line, fault time.Time, noticed float64) float64 {
	for _, l := range lines {
		if since := l.at.Sub(fault).Seconds(); since >= max(0, noticed) {
			if _, _, ok := stepOf(l.text); ok {
				return since
			}
		}
	}
	return -1
}

// read takes what a line says once for the whole run.
func (m *measures) read(text string) {
	m.readLoss(text)
	if found := digestLine.FindStringSubmatch(text); found != nil {
		m.Digest = found[2]
	}
	if found := savedLine.FindStringSubmatch(text); found != nil {
		m.Unsaved, _ = strconv.Atoi(found[1]) // as below
	}
	if found := resumeLine.FindStringSubmatch(text); found != nil {
		m.Resumed, _ = strconv.Atoi(found[1]) // digits that are no number would be a step past all numbers
	}
}

// readLoss takes what plx says of steps that are made twice.
func (m *measures) readLoss(text string) {
	if l, ok := lossOf(text); ok {
		m.Told = max(m.Told, 0) + l.chief.n + l.others.n // 0 where it says that there are none
		m.Least = m.Least || l.chief.least || l.others.least
	}
}

// about says that a line tells of trouble: neither the fault's own word nor that
// nothing has failed.
func about(text string) bool {
	return !firedLine.MatchString(text) && !strings.Contains(text, " 0 failed") && troubled.MatchString(text)
}
