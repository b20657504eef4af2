package model

import (
	"context"
	"fmt"
	"math/rand/v2"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rush lets a user make a side effect of the first run by himself, when that has written its
// journal and not yet the label; in one of ten schedules, all of which end with an undo. It draws
// no number before that which other seeds have drawn.
func (s *Schedule) rush(r *rand.Rand) {
	drawn := mix(s.Seed ^ 0x72757368)
	if drawn%10 != 0 {
		return
	}
	first := s.processes[0]
	space := s.World.Spaces[drawn/10%2]
	effect := sideEffects(space)[1+drawn/20%2]
	obj := sideEffect(effect)
	labels := map[string]string{"own": "rush"}
	if drawn/120%2 == 0 {
		labels[injected] = "true" // a copy of what a controller makes elsewhere: only when it came tells whose it is
	}
	obj.SetLabels(labels)
	first.deeds = append(first.deeds, deed{
		who: "alice", at: moment{2 + int(drawn/40%3), true}, text: fmt.Sprintf("creates %s in a rush", effect),
		do: func(ctx context.Context, u *user) error {
			_, err := u.of(effect.Resource, space).Create(ctx, obj, metav1.CreateOptions{})
			return err
		},
	})
	if s.undo == nil {
		s.undo = s.process(r, "undo")
		s.undo.kill, s.undo.term, s.undo.broken = nil, nil, false
		s.undo.opts.Timeout = 0
	}
}
