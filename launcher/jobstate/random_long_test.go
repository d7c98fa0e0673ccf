//go:build long

package jobstate

import "testing"

func TestManyOrdersOfEvents(t *testing.T) { anyOrderOfEvents(t, 0, 22000) }
