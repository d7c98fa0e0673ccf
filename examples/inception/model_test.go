package main

import "testing"

// For 1000 classes, the network has as many parameters as the published
// network without its auxiliary classifier.
func TestParameters(t *testing.T) {
	if got, err := example().Parameters(1000); got != 23_834_568 || err != nil {
		t.Errorf("%d parameters, want 23834568: %v", got, err)
	}
}
