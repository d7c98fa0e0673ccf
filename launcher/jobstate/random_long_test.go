//go:build long

package jobstate

import "testing"

func TestManyOrdersOfEvents(t *testing.T) { anyOrderOfEvents(t, 2000, 20000) }
