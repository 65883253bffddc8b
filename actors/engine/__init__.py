"""What an actor is, and the two engines that run it: live on threads, or in virtual time."""
